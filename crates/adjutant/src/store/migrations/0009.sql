-- Schema version 9: workspaces.

-- The directory of its own that an isolated run works in.
CREATE TABLE workspaces (
  run_id     TEXT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  kind       TEXT NOT NULL,
  -- The top of the user's work tree, the commit that the run starts from, and the branch that was checked out there.
  repository TEXT NOT NULL,
  base       TEXT NOT NULL,
  branch     TEXT,
  -- The top of the workspace.
  path       TEXT NOT NULL UNIQUE,
  state      TEXT NOT NULL DEFAULT 'planned'
) STRICT, WITHOUT ROWID;

-- The length of a run's whole last message, why it is no result, and what stands in for it.
ALTER TABLE runs ADD COLUMN result_bytes INTEGER;
ALTER TABLE runs ADD COLUMN result_gap TEXT;
ALTER TABLE runs ADD COLUMN reconstructed TEXT;

-- The fence that a run asked for and what holds, in JSON.
ALTER TABLE runs ADD COLUMN fence TEXT;
