-- Schema version 11.

-- The chat entry that a message to a run carries, also if it was cut, and when the run had read it: it called a tool,
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
  -- The directory that it is relative to, and the top of the tree that the run changes.
  place   TEXT NOT NULL,
  top     TEXT NOT NULL,
  at      INTEGER NOT NULL,
  PRIMARY KEY (run, kind, what)
) STRICT, WITHOUT ROWID;

-- Pairs of runs whose announcements overlap, and in what, in JSON.
CREATE TABLE overlaps (
  first  TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  second TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  items  TEXT NOT NULL,
  PRIMARY KEY (first, second)
) STRICT, WITHOUT ROWID;
CREATE INDEX overlaps_second ON overlaps (second);
ALTER TABLE runs ADD COLUMN overlap_seq INTEGER;

-- The memory that runs of an agent are expected to use, from the peaks of those that have ended.
CREATE TABLE agent_memory (
  agent      TEXT NOT NULL PRIMARY KEY,
  peak_bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Budgets: what a run and the runs below it that have none of their own may use, in milliseconds, tokens or millionths of
-- a dollar. `used` of a budget of time has only what ended runs have used.
CREATE TABLE budgets (
  run         TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  kind        TEXT NOT NULL,
  amount      INTEGER NOT NULL CHECK (amount >= 0),
  used        INTEGER NOT NULL DEFAULT 0 CHECK (used >= 0),
  -- The part that budgets of runs below have.
  reserved    INTEGER NOT NULL DEFAULT 0 CHECK (reserved >= 0),
  -- The run from whose budget it was transferred, and whether it was given back.
  lender      TEXT,
  is_returned INTEGER NOT NULL DEFAULT 0,
  is_hard     INTEGER NOT NULL DEFAULT 0,
  is_warned   INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run, kind)
) STRICT, WITHOUT ROWID;
-- The newest event about a budget of the run.
ALTER TABLE runs ADD COLUMN budget_seq INTEGER;
-- The totals that the run's agent stated last, and tokens whose cost nobody knows.
ALTER TABLE runs ADD COLUMN usage_totals TEXT;
ALTER TABLE runs ADD COLUMN unpriced_tokens INTEGER NOT NULL DEFAULT 0;
-- Whether a part of the cost was computed from configured prices.
ALTER TABLE runs ADD COLUMN is_priced INTEGER NOT NULL DEFAULT 0;
-- What the gate counted of an attempt, by model, in JSON.
ALTER TABLE attempts ADD COLUMN gate_usage TEXT;
