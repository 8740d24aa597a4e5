-- Schema version 21.

-- Signal blocks of runs that could not be read.
CREATE TABLE unreadable_blocks (
  run     TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  -- The event that recorded it.
  seq     INTEGER NOT NULL,
  -- Its type. Empty: it names none.
  kind    TEXT NOT NULL,
  why     TEXT NOT NULL,
  -- A hash of its text.
  digest  TEXT NOT NULL,
  -- The notice to the run.
  message TEXT,
  -- Whether a person or client has looked at it.
  settled INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;
