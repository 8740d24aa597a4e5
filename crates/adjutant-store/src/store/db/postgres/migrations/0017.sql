-- Schema version 17.

-- The name and the address of the hub that leads, as JSON. NULL: that hub does not share the store.
ALTER TABLE hub ADD COLUMN leader TEXT COLLATE "C";
-- The hubs that stand by: the process that serves their session, and the hash of the token with which they pass calls on. An entry without
-- such a session is void.
CREATE TABLE hubs (
  backend    BIGINT PRIMARY KEY,
  token_hash TEXT COLLATE "C" NOT NULL
);
