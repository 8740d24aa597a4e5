-- Schema version 6: conditions of live runs.

-- The retry condition of the run's CLI, in JSON, and the event that recorded it.
ALTER TABLE runs ADD COLUMN retrying TEXT;
ALTER TABLE runs ADD COLUMN retrying_seq INTEGER;
-- The known sub-agents that the CLI started by itself, in JSON.
ALTER TABLE runs ADD COLUMN subagents TEXT;
