-- Schema version 23.

-- The policies of the configuration file that are in effect.
CREATE TABLE policies_in_effect (
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  -- The policies as JSON, and a hash of it.
  source  TEXT NOT NULL,
  digest  TEXT NOT NULL,
  -- Whether a run is live, or was live when the policies changed or could not be read: a change needs the person's trust.
  guarded INTEGER NOT NULL
) STRICT;
