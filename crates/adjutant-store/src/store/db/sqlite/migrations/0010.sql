-- Schema version 10.

-- The configured settings of a workspace, and the result of its preparation, in JSON.
ALTER TABLE workspaces ADD COLUMN spec TEXT;
ALTER TABLE workspaces ADD COLUMN preparation TEXT;

-- The ports of a run's newest attempt: the first one, and how many. Others may use them once the run is not live.
ALTER TABLE runs ADD COLUMN port_base INTEGER;
ALTER TABLE runs ADD COLUMN port_count INTEGER;

-- The resource use of the run's processes, in JSON.
ALTER TABLE runs ADD COLUMN resources TEXT;

-- The pool of a run, the number of runs that it still waits for, the action if one of them fails, and why it has its
-- agent.
ALTER TABLE runs ADD COLUMN pool TEXT NOT NULL DEFAULT 'default';
ALTER TABLE runs ADD COLUMN after_open INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN after_failed TEXT NOT NULL DEFAULT 'cancel';
ALTER TABLE runs ADD COLUMN agent_why TEXT;

DROP INDEX runs_queue;
CREATE INDEX runs_queue ON runs (pool, after_open, rank, owner, agent, no) WHERE state = 'queued';

-- Changes of pools made by a command. NULL slots: as configured.
CREATE TABLE pools (
  name       TEXT NOT NULL PRIMARY KEY,
  slots      INTEGER CHECK (slots > 0),
  is_paused  INTEGER NOT NULL DEFAULT 0,
  changed_by TEXT NOT NULL,
  changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The event of the newest start of each owner's runs in each pool.
CREATE TABLE pool_starts (
  pool  TEXT NOT NULL,
  owner TEXT NOT NULL,
  seq   INTEGER NOT NULL,
  PRIMARY KEY (pool, owner)
) STRICT, WITHOUT ROWID;

-- Runs that start only after others have ended. The other run may have been removed.
CREATE TABLE run_after (
  run       TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  after_run TEXT NOT NULL,
  on_end    TEXT NOT NULL,
  state     TEXT NOT NULL DEFAULT 'open',
  PRIMARY KEY (run, after_run)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_after_of ON run_after (after_run);

-- Approvals that also answer the same operation again within a tree of runs, and the requests that they have answered.
CREATE TABLE grants (
  no         INTEGER PRIMARY KEY AUTOINCREMENT,
  root       TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  -- A hash of what identifies the operation.
  identity   TEXT NOT NULL,
  what       TEXT NOT NULL,
  -- The number of the approval that gave the grant.
  request    INTEGER NOT NULL,
  granted_by TEXT NOT NULL,
  granted_at INTEGER NOT NULL,
  expires_at INTEGER,
  uses_max   INTEGER,
  uses       INTEGER NOT NULL DEFAULT 0,
  revoked_at INTEGER,
  revoked_by TEXT,
  CHECK (uses_max IS NULL OR uses <= uses_max),
  CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
) STRICT;
CREATE INDEX grants_of_tree ON grants (root, identity);
CREATE TABLE grant_uses (
  grant_no INTEGER NOT NULL REFERENCES grants (no) ON DELETE CASCADE,
  request  TEXT NOT NULL REFERENCES requests (id) ON DELETE CASCADE,
  PRIMARY KEY (grant_no, request)
) STRICT, WITHOUT ROWID;
CREATE INDEX grant_uses_of ON grant_uses (request);

-- When a request was asked, on the steady clock, and the people to whom it was escalated, in JSON.
ALTER TABLE requests ADD COLUMN waits_since INTEGER;
ALTER TABLE requests ADD COLUMN escalated TEXT;

-- The policies of a run's repository at its start: the directory and the text, in JSON.
ALTER TABLE runs ADD COLUMN repository_policies TEXT;

-- The agents that may do a run, the preferred one first, if there are several. `spec` is as in `run_inputs`.
CREATE TABLE run_agents (
  run           TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  n             INTEGER NOT NULL,
  agent         TEXT NOT NULL,
  pool          TEXT NOT NULL,
  spec          TEXT NOT NULL,
  after_failure INTEGER NOT NULL,
  is_tried      INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run, n)
) STRICT, WITHOUT ROWID;

-- Usage limits of agents, as their vendors reported them: when runs may start again, and how many starts are then spread out.
CREATE TABLE usage_limits (
  agent       TEXT NOT NULL PRIMARY KEY,
  until_at    INTEGER NOT NULL,
  spread      INTEGER NOT NULL,
  reported_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
