-- Schema version 5: clock.

-- When an attempt's agent ended, by its supervisor.
ALTER TABLE attempts ADD COLUMN agent_end_at INTEGER;

-- A row: free pages and the log may still hold what must not stay, and the database is to be rewritten.
CREATE TABLE wipes (since INTEGER NOT NULL) STRICT;
INSERT INTO wipes SELECT 1 WHERE EXISTS (SELECT 1 FROM run_inputs) OR EXISTS (SELECT 1 FROM chat_turns);
