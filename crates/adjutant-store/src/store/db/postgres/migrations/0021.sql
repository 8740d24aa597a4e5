-- Schema version 21. The comments are in the migration for SQLite.

CREATE TABLE unreadable_blocks (
  run     TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  seq     BIGINT NOT NULL,
  kind    TEXT COLLATE "C" NOT NULL,
  why     TEXT COLLATE "C" NOT NULL,
  digest  TEXT COLLATE "C" NOT NULL,
  message TEXT COLLATE "C",
  settled BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (run, seq)
);
