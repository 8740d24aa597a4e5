-- Schema version 18. The comments are in the migration for SQLite.

CREATE TABLE left_on_runners (
  host TEXT COLLATE "C" NOT NULL,
  run  TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (host, run)
);
