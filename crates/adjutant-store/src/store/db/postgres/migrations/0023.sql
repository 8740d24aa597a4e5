-- Schema version 23. The comments are in the migration for SQLite.

CREATE TABLE policies_in_effect (
  one     BIGINT PRIMARY KEY CHECK (one = 1),
  source  TEXT COLLATE "C" NOT NULL,
  digest  TEXT COLLATE "C" NOT NULL,
  guarded BIGINT NOT NULL
);
