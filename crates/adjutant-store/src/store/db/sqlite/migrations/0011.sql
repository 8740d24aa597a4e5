-- Schema version 11.

-- The chat entry that a message to a run carries, whole or cut, and when the run has read it: when it called a tool,
-- ended a turn or read the chat after the delivery.
ALTER TABLE messages ADD COLUMN note_of INTEGER;
ALTER TABLE messages ADD COLUMN read_at INTEGER;
CREATE INDEX messages_note ON messages (note_of) WHERE note_of IS NOT NULL;
CREATE INDEX messages_unread ON messages (run) WHERE note_of IS NOT NULL AND read_at IS NULL AND delivery <> 'queued';

-- What runs have announced that they will change or provide.
CREATE TABLE announcements (
  run     TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  kind    TEXT NOT NULL,
  what    TEXT NOT NULL,
  -- The directory that `what` is relative to, and the top of the tree that the run changes.
  place   TEXT NOT NULL,
  top     TEXT NOT NULL,
  at      INTEGER NOT NULL,
  PRIMARY KEY (run, kind, what)
) STRICT, WITHOUT ROWID;

-- Pairs of runs whose announcements overlap, and the overlapping items in JSON.
CREATE TABLE overlaps (
  first  TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  second TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  items  TEXT NOT NULL,
  PRIMARY KEY (first, second)
) STRICT, WITHOUT ROWID;
CREATE INDEX overlaps_second ON overlaps (second);
ALTER TABLE runs ADD COLUMN overlap_seq INTEGER;

-- The expected memory of an agent's runs, from the peaks of its ended runs.
CREATE TABLE agent_memory (
  agent      TEXT NOT NULL PRIMARY KEY,
  peak_bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Budgets: what a run and the runs below it without their own budgets may use, in milliseconds, tokens or millionths of
-- a dollar. For a budget of time, `used` contains only the time of ended runs.
CREATE TABLE budgets (
  run         TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  kind        TEXT NOT NULL,
  amount      INTEGER NOT NULL CHECK (amount >= 0),
  used        INTEGER NOT NULL DEFAULT 0 CHECK (used >= 0),
  -- The part transferred to budgets of runs below.
  reserved    INTEGER NOT NULL DEFAULT 0 CHECK (reserved >= 0),
  -- The run from whose budget it was transferred, and whether it was returned.
  lender      TEXT,
  is_returned INTEGER NOT NULL DEFAULT 0,
  is_hard     INTEGER NOT NULL DEFAULT 0,
  is_warned   INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run, kind)
) STRICT, WITHOUT ROWID;
-- The newest event about a budget of the run.
ALTER TABLE runs ADD COLUMN budget_seq INTEGER;
-- The totals that the run's agent stated last, and the number of tokens whose cost is unknown.
ALTER TABLE runs ADD COLUMN usage_totals TEXT;
ALTER TABLE runs ADD COLUMN unpriced_tokens INTEGER NOT NULL DEFAULT 0;
-- Whether a part of the cost was computed from configured prices.
ALTER TABLE runs ADD COLUMN is_priced INTEGER NOT NULL DEFAULT 0;
-- The usage of an attempt that the gate counted, by model, in JSON.
ALTER TABLE attempts ADD COLUMN gate_usage TEXT;
