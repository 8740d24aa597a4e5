-- Schema version 24.

-- The eras of a store whose database was set back, on a server. Era 0 has no row.
CREATE TABLE eras (
  era      INTEGER PRIMARY KEY,
  began_at INTEGER NOT NULL,
  -- The numbers that were left out, by table, as JSON: the last one before, and the one above which numbers continue.
  gaps     TEXT NOT NULL
) STRICT;
