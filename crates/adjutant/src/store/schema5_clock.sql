-- Schema version 5: clock.

-- When an attempt's agent ended, by its supervisor.
ALTER TABLE attempts ADD COLUMN agent_end_at INTEGER;

-- A row: free pages and the log may still hold what must not stay, and the database is to be rewritten.
CREATE TABLE wipes (since INTEGER NOT NULL) STRICT;
INSERT INTO wipes SELECT 1 WHERE EXISTS (SELECT 1 FROM run_inputs) OR EXISTS (SELECT 1 FROM chat_turns);

-- The clock that deadlines count by, in milliseconds: its time at a reading of the machine's clocks, what a start of
-- the machine leaves open, and the last jump of the wall clock.
CREATE TABLE clock (
  one           INTEGER PRIMARY KEY CHECK (one = 1),
  now           INTEGER NOT NULL,
  wall          INTEGER NOT NULL,
  since_boot    INTEGER NOT NULL,
  boot          TEXT NOT NULL,
  away_expected INTEGER,
  away_calm     INTEGER,
  jump_by       INTEGER,
  jump_noticed  INTEGER,
  ahead         INTEGER NOT NULL
) STRICT;

-- By that clock: when a run finished, and until when a kept wait is kept.
ALTER TABLE runs ADD COLUMN settled_at INTEGER;
UPDATE runs SET settled_at = ended_at WHERE state = 'finished';
CREATE INDEX runs_settled ON runs (settled_at) WHERE state = 'finished';
ALTER TABLE tasks ADD COLUMN due_at INTEGER;
UPDATE tasks SET due_at = created_at + ttl_ms;
