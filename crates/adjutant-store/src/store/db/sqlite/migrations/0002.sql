-- If the asking run waits, its request is answered and retrieved at once.
DROP TRIGGER requests_move_forward;
CREATE TRIGGER requests_move_forward BEFORE UPDATE OF status ON requests
  WHEN NEW.status <> OLD.status AND NOT (
    (OLD.status = 'pending' AND NEW.status IN ('answered', 'retrieved', 'expired', 'withdrawn'))
    OR (OLD.status = 'answered' AND NEW.status = 'retrieved'))
  BEGIN SELECT RAISE (ABORT, 'a request never moves back'); END;
-- Participants named in an imported file are not identities of this home.
UPDATE chat_members SET who = 'file:' || who WHERE chat IN (SELECT id FROM chats WHERE imported = 1) AND who NOT LIKE 'file:%';
UPDATE chats SET started_by = 'file:' || started_by WHERE imported = 1 AND started_by NOT LIKE 'file:%';
-- Finds the chats with unread mentions of a participant.
CREATE INDEX chat_members_named ON chat_members (who, chat) WHERE mention_seq > read_seq;
-- Search. The tags of an indexed entry name its chat, author and owner, so that a search within one of them reads
-- nothing else.
DROP TABLE chat_fts;
DROP VIEW chat_search;
CREATE VIEW chat_search AS
  SELECT m.id, 'c' || m.chat || ' o' || hex(c.owner) || ' r' || coalesce(hex(c.root), '') || ' a' || hex(m.author)
    || CASE WHEN instr(m.text, '?') > 0 THEN ' q' ELSE '' END AS tags, m.text
  FROM chat_messages m JOIN chats c ON c.id = m.chat;
CREATE VIRTUAL TABLE chat_fts USING fts5 (tags, text, content = 'chat_search', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2');
INSERT INTO chat_fts (chat_fts, rank) VALUES ('rank', 'bm25(0.0, 1.0)');
INSERT INTO chat_fts (chat_fts) VALUES ('rebuild');

-- The range of entry ids for each hour. Imported entries keep their times, so ids are not ordered by time.
CREATE TABLE chat_hours (
  hour  INTEGER PRIMARY KEY,
  first INTEGER NOT NULL,
  last  INTEGER NOT NULL
) STRICT;
INSERT INTO chat_hours SELECT at / 3600000, min(id), max(id) FROM chat_messages GROUP BY 1;
CREATE TRIGGER chat_messages_hour AFTER INSERT ON chat_messages BEGIN
  INSERT INTO chat_hours VALUES (NEW.at / 3600000, NEW.id, NEW.id) ON CONFLICT (hour) DO UPDATE SET last = excluded.last;
END;

-- Requests with their answers, and reports. They are indexed from the history by the next search or when the hub is
-- idle, so that asking and answering do not become slower.
CREATE TABLE search_docs (
  id   INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL CHECK (kind IN ('request', 'report')),
  -- The id of the request or run.
  ref  TEXT NOT NULL UNIQUE,
  run  TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  at   INTEGER NOT NULL
) STRICT;
CREATE INDEX search_docs_run ON search_docs (run);
CREATE VIRTUAL TABLE search_fts USING fts5 (tags, text, tokenize = 'unicode61 remove_diacritics 2');
INSERT INTO search_fts (search_fts, rank) VALUES ('rank', 'bm25(0.0, 1.0)');
CREATE TRIGGER search_docs_gone AFTER DELETE ON search_docs BEGIN DELETE FROM search_fts WHERE rowid = OLD.id; END;

-- The position up to which the history is indexed.
CREATE TABLE search_seen (
  id  INTEGER PRIMARY KEY CHECK (id = 1),
  seq INTEGER NOT NULL
) STRICT;
INSERT INTO search_seen VALUES (1, 0);
-- Webhooks. The transaction that records an event adds it to the outbox. An entry stays there until its receiver has
-- accepted it, or after too many failures.
CREATE TABLE webhooks (
  url     TEXT NOT NULL PRIMARY KEY,
  -- The number of deliveries dropped because too many were waiting.
  dropped INTEGER NOT NULL DEFAULT 0
) STRICT;
-- The events that each webhook receives. If there are none, nothing is added to the outbox.
CREATE TABLE webhook_events (
  kind TEXT NOT NULL,
  url  TEXT NOT NULL REFERENCES webhooks (url) ON DELETE CASCADE,
  PRIMARY KEY (kind, url)
) STRICT, WITHOUT ROWID;
CREATE TABLE outbox (
  no       INTEGER PRIMARY KEY AUTOINCREMENT,
  -- Identifies a delivery, so that the receiver recognises a retry.
  id       TEXT NOT NULL UNIQUE,
  url      TEXT NOT NULL REFERENCES webhooks (url) ON DELETE CASCADE,
  kind     TEXT NOT NULL,
  at       INTEGER NOT NULL,
  run      TEXT,
  request  TEXT,
  -- The chat entry to deliver.
  entry    INTEGER,
  by       TEXT NOT NULL,
  text     TEXT NOT NULL,
  state    TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'parked')),
  attempts INTEGER NOT NULL DEFAULT 0,
  next_at  INTEGER NOT NULL DEFAULT 0,
  problem  TEXT
) STRICT;
CREATE INDEX outbox_next ON outbox (url, state, no);
CREATE TRIGGER events_go_out AFTER INSERT ON events WHEN EXISTS (SELECT 1 FROM webhook_events WHERE kind = NEW.kind) BEGIN
  INSERT INTO outbox (id, url, kind, at, run, request, by, text)
    SELECT lower(hex(randomblob(16))), url, NEW.kind, NEW.at, NEW.run, NEW.request, NEW.by, NEW.text FROM webhook_events WHERE kind = NEW.kind;
END;
CREATE TRIGGER chat_messages_go_out AFTER INSERT ON chat_messages
  WHEN EXISTS (SELECT 1 FROM webhook_events WHERE kind = 'chat.message') AND NOT (SELECT imported FROM chats WHERE id = NEW.chat) BEGIN
  INSERT INTO outbox (id, url, kind, at, entry, by, text)
    SELECT lower(hex(randomblob(16))), url, kind, NEW.at, NEW.id, NEW.author, '' FROM webhook_events WHERE kind = 'chat.message';
END;
-- The size of a chat's window in tokens, if it is not in characters.
ALTER TABLE chats ADD COLUMN window_tokens INTEGER;

-- The number of tokens of an entry's text at a revision.
CREATE TABLE chat_tokens (
  message  INTEGER PRIMARY KEY REFERENCES chat_messages (id),
  revision INTEGER NOT NULL,
  tokens   INTEGER NOT NULL
) STRICT;
-- When a run fell silent, and the event that recorded it.
ALTER TABLE runs ADD COLUMN stalled_at INTEGER;
ALTER TABLE runs ADD COLUMN stall_seq INTEGER;
-- A note for the user on how the newest attempt was started.
ALTER TABLE runs ADD COLUMN note TEXT;
-- Agent configuration in directories that the person has trusted, as a hash.
CREATE TABLE trusted (
  cwd  TEXT NOT NULL,
  hash TEXT NOT NULL,
  by   TEXT NOT NULL,
  at   INTEGER NOT NULL,
  PRIMARY KEY (cwd, hash)
) STRICT, WITHOUT ROWID;
-- The number of edits and pins in the chat, so that readers can find new ones.
ALTER TABLE chats ADD COLUMN changes INTEGER NOT NULL DEFAULT 0;
-- The number of an entry's newest change. 0: unchanged.
ALTER TABLE chat_messages ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
CREATE INDEX chat_messages_changed ON chat_messages (chat, changed) WHERE changed > 0;
