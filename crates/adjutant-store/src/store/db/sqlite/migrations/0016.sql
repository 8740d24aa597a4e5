-- Schema version 16.

-- The runner that has the attempt, as `<token>/<id of its home>`. NULL: the hub's own machine.
ALTER TABLE attempts ADD COLUMN host TEXT;
-- How long the runner may be cut off, and when it has been for longer.
ALTER TABLE attempts ADD COLUMN lease_ms INTEGER;
ALTER TABLE attempts ADD COLUMN lost_at INTEGER;
