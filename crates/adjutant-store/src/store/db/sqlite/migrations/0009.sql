-- Schema version 9: workspaces.

-- The workspace of an isolated run.
CREATE TABLE workspaces (
  run_id     TEXT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  kind       TEXT NOT NULL,
  -- The top of the user's work tree, the commit that the run starts from, and the branch that was checked out there.
  repository TEXT NOT NULL,
  base       TEXT NOT NULL,
  branch     TEXT,
  -- A commit of the user's uncommitted changes that it starts with.
  changes    TEXT,
  -- The top of the workspace.
  path       TEXT NOT NULL UNIQUE,
  state      TEXT NOT NULL DEFAULT 'planned'
) STRICT, WITHOUT ROWID;

-- The length of a run's whole last message, why it is not a result, and the reconstructed result.
ALTER TABLE runs ADD COLUMN result_bytes INTEGER;
ALTER TABLE runs ADD COLUMN result_gap TEXT;
ALTER TABLE runs ADD COLUMN reconstructed TEXT;

-- The requested fence of a run and what is enforced, in JSON.
ALTER TABLE runs ADD COLUMN fence TEXT;

-- Merges of runs' changes into the user's repositories. A row is written before the repository is changed. After a crash,
-- it has the data to complete or revert the merge.
CREATE TABLE merges (
  run_id        TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  -- From 1 within its run.
  n             INTEGER NOT NULL,
  is_done       INTEGER NOT NULL DEFAULT 0,
  mode          TEXT NOT NULL,
  repository    TEXT NOT NULL,
  -- The ref that is moved or created. NULL: only the tree and the index change.
  git_ref       TEXT,
  before_commit TEXT NOT NULL,
  after_commit  TEXT NOT NULL,
  -- The number of the run's snapshot that is merged.
  snapshot      INTEGER NOT NULL,
  -- For the reflog.
  user_name     TEXT NOT NULL,
  user_email    TEXT NOT NULL,
  reason        TEXT NOT NULL,
  merged_by     TEXT NOT NULL,
  PRIMARY KEY (run_id, n)
) STRICT, WITHOUT ROWID;

CREATE INDEX merges_under_way ON merges (is_done) WHERE is_done = 0;

-- Runs that resolve the conflicts of another run's changes.
CREATE TABLE resolutions (
  run_id   TEXT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  resolves TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX resolutions_of ON resolutions (resolves);

-- Why a snapshot of a run's tree could not be taken, and the event that recorded it.
ALTER TABLE runs ADD COLUMN snapshot_problem TEXT;
ALTER TABLE runs ADD COLUMN snapshot_seq INTEGER;

-- Due tasks for the tree of a run: a snapshot, or a comparison with its siblings. `seq` grows each time a task becomes due.
CREATE TABLE tree_work (
  run  TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  what TEXT NOT NULL,
  seq  INTEGER NOT NULL DEFAULT 1,
  PRIMARY KEY (run, what)
) STRICT, WITHOUT ROWID;

-- Pairs of isolated runs whose trees were compared: the commits, the numbers of changed files, the conflicting files.
CREATE TABLE conflicts (
  first         TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  second        TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  first_commit  TEXT NOT NULL,
  second_commit TEXT NOT NULL,
  first_files   INTEGER NOT NULL,
  second_files  INTEGER NOT NULL,
  files         TEXT NOT NULL,
  PRIMARY KEY (first, second)
) STRICT, WITHOUT ROWID;
CREATE INDEX conflicts_second ON conflicts (second);
ALTER TABLE runs ADD COLUMN conflict_seq INTEGER;
