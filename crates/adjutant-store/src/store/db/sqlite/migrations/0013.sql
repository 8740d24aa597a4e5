-- Schema version 13.

-- Undos that have started and not ended. A row is written before the first file is changed. After a crash it tells which undo left
-- files of two snapshots behind.
CREATE TABLE undos (
  run_id          TEXT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  -- The snapshot that is restored, and the one that was taken before.
  to_snapshot     INTEGER NOT NULL,
  before_snapshot INTEGER NOT NULL,
  is_forced       INTEGER NOT NULL,
  is_interrupted  INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
