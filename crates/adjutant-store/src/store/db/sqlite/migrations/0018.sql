-- Schema version 18.

-- Removed runs whose files may be left on a runner, until it has removed them.
CREATE TABLE left_on_runners (
  -- The runner, as in attempts.
  host TEXT NOT NULL,
  run  TEXT NOT NULL,
  PRIMARY KEY (host, run)
) STRICT, WITHOUT ROWID;
