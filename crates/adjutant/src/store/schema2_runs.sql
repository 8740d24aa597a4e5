-- Since when a run is silent, and the event that said so.
ALTER TABLE runs ADD COLUMN stalled_at INTEGER;
ALTER TABLE runs ADD COLUMN stall_seq INTEGER;
-- What the user should know about how its newest attempt was started.
ALTER TABLE runs ADD COLUMN note TEXT;
-- What a directory says about agents and somebody has trusted: a hash over it.
CREATE TABLE trusted (
  cwd  TEXT NOT NULL,
  hash TEXT NOT NULL,
  by   TEXT NOT NULL,
  at   INTEGER NOT NULL,
  PRIMARY KEY (cwd, hash)
) STRICT, WITHOUT ROWID;
