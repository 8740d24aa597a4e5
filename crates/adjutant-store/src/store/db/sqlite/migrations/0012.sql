-- Schema version 12.

-- Tokens for callers over HTTP. Only their hashes are stored, until they are revoked.
CREATE TABLE tokens (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  name       TEXT NOT NULL,
  hash       TEXT UNIQUE,
  role       TEXT NOT NULL,
  client     TEXT,
  created_at INTEGER NOT NULL,
  -- Exact to the hour.
  used_at    INTEGER,
  revoked_at INTEGER,
  CHECK ((hash IS NULL) = (revoked_at IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX tokens_name ON tokens (name) WHERE revoked_at IS NULL;

-- Events of pools. They share their sequence of positions with the events of runs.
CREATE TABLE pool_events (
  seq  INTEGER PRIMARY KEY,
  at   INTEGER NOT NULL,
  kind TEXT NOT NULL,
  pool TEXT NOT NULL,
  by   TEXT NOT NULL,
  text TEXT NOT NULL
) STRICT;

-- A queued run has an `end_seq` while it is held, because a run that it starts after has failed. It needs attention like
-- a stopped run.
CREATE INDEX runs_held ON runs (end_seq) WHERE state = 'queued' AND end_seq IS NOT NULL;
UPDATE runs SET end_seq = last_seq
  WHERE state = 'queued' AND EXISTS (SELECT 1 FROM run_after WHERE run = runs.id AND state = 'failed');

-- Unknown parts of the usage charged to a budget: requests and attempts without stated usage, and tokens without a
-- known cost.
ALTER TABLE budgets ADD COLUMN unstated INTEGER NOT NULL DEFAULT 0;
ALTER TABLE budgets ADD COLUMN unpriced INTEGER NOT NULL DEFAULT 0;
UPDATE budgets SET unstated = (
    WITH RECURSIVE down (id) AS (SELECT budgets.run UNION ALL SELECT r.id FROM down JOIN runs r ON r.parent = down.id
      WHERE NOT EXISTS (SELECT 1 FROM budgets b WHERE b.run = r.id AND b.kind = budgets.kind AND b.is_returned = 0))
    SELECT count(*) FROM down JOIN runs r ON r.id = down.id
    WHERE r.input_tokens IS NULL AND r.started_at IS NOT NULL AND r.state IN ('stopped', 'finished')
  ) WHERE kind <> 'time';
UPDATE budgets SET unpriced = (
    WITH RECURSIVE down (id) AS (SELECT budgets.run UNION ALL SELECT r.id FROM down JOIN runs r ON r.parent = down.id
      WHERE NOT EXISTS (SELECT 1 FROM budgets b WHERE b.run = r.id AND b.kind = budgets.kind AND b.is_returned = 0))
    SELECT coalesce(sum(r.unpriced_tokens), 0) FROM down JOIN runs r ON r.id = down.id
  ) WHERE kind = 'cost';

-- Rolling windows of agents' quotas, as their vendors last stated them.
CREATE TABLE quota_windows (
  agent        TEXT NOT NULL,
  minutes      INTEGER NOT NULL,
  used_percent INTEGER NOT NULL,
  resets_at    INTEGER NOT NULL,
  reported_at  INTEGER NOT NULL,
  PRIMARY KEY (agent, minutes)
) STRICT, WITHOUT ROWID;
