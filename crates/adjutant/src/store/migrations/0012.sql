-- Schema version 12.

-- Changes of pools. Their positions are those of the history, in which the events of runs are.
CREATE TABLE pool_events (
  seq  INTEGER PRIMARY KEY,
  at   INTEGER NOT NULL,
  kind TEXT NOT NULL,
  pool TEXT NOT NULL,
  by   TEXT NOT NULL,
  text TEXT NOT NULL
) STRICT;
