-- Schema version 5: stops.
-- Since when the active time of a run at work is counted that active_ms does not hold yet.
ALTER TABLE runs ADD COLUMN active_since INTEGER;
-- The active time at which the run was to be done, by the newest estimate; when it was past that, and the event
-- that says so.
ALTER TABLE runs ADD COLUMN estimate_ms INTEGER;
ALTER TABLE runs ADD COLUMN overdue_at INTEGER;
ALTER TABLE runs ADD COLUMN overdue_seq INTEGER;
CREATE INDEX runs_estimates ON runs (active_since + estimate_ms - active_ms)
  WHERE state = 'running' AND active_since IS NOT NULL AND estimate_ms IS NOT NULL AND overdue_seq IS NULL;
