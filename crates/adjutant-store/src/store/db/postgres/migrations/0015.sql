-- Schema version 15. The comments are in the migration for SQLite.

CREATE TABLE peers (
  id          BIGINT PRIMARY KEY DEFAULT next_number('peers'),
  name        TEXT COLLATE "C" NOT NULL UNIQUE,
  token       BIGINT,
  url         TEXT COLLATE "C",
  fingerprint TEXT COLLATE "C",
  secret      TEXT COLLATE "C",
  blocked     BIGINT NOT NULL DEFAULT 0,
  added_at    BIGINT NOT NULL,
  CHECK ((url IS NULL) = (secret IS NULL))
);

CREATE TABLE chat_shares (
  chat      BIGINT NOT NULL REFERENCES chats (id),
  peer      BIGINT NOT NULL REFERENCES peers (id) ON DELETE CASCADE,
  read_only BIGINT NOT NULL,
  PRIMARY KEY (chat, peer)
);
CREATE INDEX chat_shares_peer ON chat_shares (peer, chat);

CREATE TABLE peer_posts (
  peer    TEXT COLLATE "C" NOT NULL,
  key     TEXT COLLATE "C" NOT NULL,
  message BIGINT NOT NULL REFERENCES chat_messages (id),
  PRIMARY KEY (peer, key)
);
CREATE UNIQUE INDEX peer_posts_message ON peer_posts (message);

CREATE TABLE followed_chats (
  chat      BIGINT PRIMARY KEY REFERENCES chats (id),
  peer      BIGINT REFERENCES peers (id) ON DELETE SET NULL,
  peer_name TEXT COLLATE "C" NOT NULL,
  remote    BIGINT NOT NULL,
  mark      TEXT COLLATE "C",
  changes   BIGINT NOT NULL DEFAULT 0,
  -- Why the copy is not continued.
  ended     TEXT COLLATE "C"
);
CREATE UNIQUE INDEX followed_chats_remote ON followed_chats (peer, remote) WHERE ended IS NULL;

CREATE TABLE peer_outbox (
  no       BIGINT PRIMARY KEY DEFAULT next_number('peer_outbox'),
  key      TEXT COLLATE "C" NOT NULL UNIQUE,
  chat     BIGINT NOT NULL REFERENCES followed_chats (chat),
  author   TEXT COLLATE "C" NOT NULL,
  name     TEXT COLLATE "C" NOT NULL,
  text     TEXT COLLATE "C" NOT NULL,
  reply_to BIGINT,
  at       BIGINT NOT NULL,
  state    TEXT COLLATE "C" NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivered', 'refused')),
  problem  TEXT COLLATE "C",
  CHECK ((state = 'refused') = (problem IS NOT NULL))
);
CREATE INDEX peer_outbox_next ON peer_outbox (chat, state, no);

ALTER TABLE chats ADD COLUMN linked TEXT COLLATE "C";
