-- Schema version 15.

-- Other hubs. `token` is the token of this hub that the peer presents; `secret` is the file in the home with the token of the peer that
-- this hub presents.
CREATE TABLE peers (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  name        TEXT NOT NULL UNIQUE,
  token       INTEGER,
  url         TEXT,
  fingerprint TEXT,
  secret      TEXT,
  blocked     INTEGER NOT NULL DEFAULT 0,
  added_at    INTEGER NOT NULL,
  CHECK ((url IS NULL) = (secret IS NULL))
) STRICT;

-- The chats of this hub that peers may follow.
CREATE TABLE chat_shares (
  chat      INTEGER NOT NULL REFERENCES chats (id),
  peer      INTEGER NOT NULL REFERENCES peers (id) ON DELETE CASCADE,
  read_only INTEGER NOT NULL,
  PRIMARY KEY (chat, peer)
) STRICT, WITHOUT ROWID;
CREATE INDEX chat_shares_peer ON chat_shares (peer, chat);

-- The posts of peers, by the key that the peer has chosen for each. They outlive the peer: one that is removed and made known again
-- can repeat a post.
CREATE TABLE peer_posts (
  peer    TEXT NOT NULL,
  key     TEXT NOT NULL,
  message INTEGER NOT NULL REFERENCES chat_messages (id),
  PRIMARY KEY (peer, key)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX peer_posts_message ON peer_posts (message);

-- Copies of chats of peers. `mark` identifies the last entry, as the peer has stated; `changes` is the last change of entries.
CREATE TABLE followed_chats (
  chat      INTEGER PRIMARY KEY REFERENCES chats (id),
  peer      INTEGER REFERENCES peers (id) ON DELETE SET NULL,
  peer_name TEXT NOT NULL,
  remote    INTEGER NOT NULL,
  mark      TEXT,
  changes   INTEGER NOT NULL DEFAULT 0,
  -- Why the copy is not continued.
  ended     TEXT
) STRICT;
CREATE UNIQUE INDEX followed_chats_remote ON followed_chats (peer, remote) WHERE ended IS NULL;

-- Posts to followed chats. A delivered one is removed when its entry arrives.
CREATE TABLE peer_outbox (
  no       INTEGER PRIMARY KEY AUTOINCREMENT,
  key      TEXT NOT NULL UNIQUE,
  chat     INTEGER NOT NULL REFERENCES followed_chats (chat),
  author   TEXT NOT NULL,
  name     TEXT NOT NULL,
  text     TEXT NOT NULL,
  reply_to INTEGER,
  at       INTEGER NOT NULL,
  state    TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivered', 'refused')),
  problem  TEXT,
  CHECK ((state = 'refused') = (problem IS NOT NULL))
) STRICT;
CREATE INDEX peer_outbox_next ON peer_outbox (chat, state, no);

-- Whether a chat is shared with peers, or is a copy of a peer's chat.
ALTER TABLE chats ADD COLUMN linked TEXT;
