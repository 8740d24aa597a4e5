-- Schema version 6: conditions of live runs.

-- That the run's CLI repeats a call that keeps failing, in JSON, and the event that says so.
ALTER TABLE runs ADD COLUMN retrying TEXT;
ALTER TABLE runs ADD COLUMN retrying_seq INTEGER;
-- What is known of the sub-agents that the CLI itself started, in JSON.
ALTER TABLE runs ADD COLUMN subagents TEXT;
