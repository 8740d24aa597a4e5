-- An asker that waits for its answer has it when it is given.
DROP TRIGGER requests_move_forward;
CREATE TRIGGER requests_move_forward BEFORE UPDATE OF status ON requests
  WHEN NEW.status <> OLD.status AND NOT (
    (OLD.status = 'pending' AND NEW.status IN ('answered', 'retrieved', 'expired', 'withdrawn'))
    OR (OLD.status = 'answered' AND NEW.status = 'retrieved'))
  BEGIN SELECT RAISE (ABORT, 'a request never moves back'); END;
-- Whom an imported file names is nobody here.
UPDATE chat_members SET who = 'file:' || who WHERE chat IN (SELECT id FROM chats WHERE imported = 1) AND who NOT LIKE 'file:%';
UPDATE chats SET started_by = 'file:' || started_by WHERE imported = 1 AND started_by NOT LIKE 'file:%';
-- Finds the chats in which something unread is for somebody.
CREATE INDEX chat_members_named ON chat_members (who, chat) WHERE mention_seq > read_seq;
-- Search. The tags of an index say what an entry belongs to, so that a search within one chat, of one author or of
-- one owner touches nothing else.
DROP TABLE chat_fts;
DROP VIEW chat_search;
CREATE VIEW chat_search AS
  SELECT m.id, 'c' || m.chat || ' o' || hex(c.owner) || ' r' || coalesce(hex(c.root), '') || ' a' || hex(m.author)
    || CASE WHEN instr(m.text, '?') > 0 THEN ' q' ELSE '' END AS tags, m.text
  FROM chat_messages m JOIN chats c ON c.id = m.chat;
CREATE VIRTUAL TABLE chat_fts USING fts5 (tags, text, content = 'chat_search', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2');
INSERT INTO chat_fts (chat_fts, rank) VALUES ('rank', 'bm25(0.0, 1.0)');
INSERT INTO chat_fts (chat_fts) VALUES ('rebuild');

-- Which entries each hour may hold: an imported entry keeps its time, so ids alone do not tell it.
CREATE TABLE chat_hours (
  hour  INTEGER PRIMARY KEY,
  first INTEGER NOT NULL,
  last  INTEGER NOT NULL
) STRICT;
INSERT INTO chat_hours SELECT at / 3600000, min(id), max(id) FROM chat_messages GROUP BY 1;
CREATE TRIGGER chat_messages_hour AFTER INSERT ON chat_messages BEGIN
  INSERT INTO chat_hours VALUES (NEW.at / 3600000, NEW.id, NEW.id) ON CONFLICT (hour) DO UPDATE SET last = excluded.last;
END;

-- Requests with their answers, and what runs reported. They are indexed behind the history, by whoever searches
-- or when there is time, so that asking and answering cost no more for it.
CREATE TABLE search_docs (
  id   INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL CHECK (kind IN ('request', 'report')),
  -- The request's id, or the run's.
  ref  TEXT NOT NULL UNIQUE,
  run  TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  at   INTEGER NOT NULL
) STRICT;
CREATE INDEX search_docs_run ON search_docs (run);
CREATE VIRTUAL TABLE search_fts USING fts5 (tags, text, tokenize = 'unicode61 remove_diacritics 2');
INSERT INTO search_fts (search_fts, rank) VALUES ('rank', 'bm25(0.0, 1.0)');
CREATE TRIGGER search_docs_gone AFTER DELETE ON search_docs BEGIN DELETE FROM search_fts WHERE rowid = OLD.id; END;

-- How much of the history is in the index.
CREATE TABLE search_seen (
  id  INTEGER PRIMARY KEY CHECK (id = 1),
  seq INTEGER NOT NULL
) STRICT;
INSERT INTO search_seen VALUES (1, 0);
-- Webhooks. What has to be told is put into the outbox by the transaction in which it happens, and stays there until
-- its receiver has taken it or has failed too often.
CREATE TABLE webhooks (
  url     TEXT NOT NULL PRIMARY KEY,
  -- Deliveries that were given up because too many waited.
  dropped INTEGER NOT NULL DEFAULT 0
) STRICT;
-- What each wants to be told. Empty, nothing is put into the outbox.
CREATE TABLE webhook_events (
  kind TEXT NOT NULL,
  url  TEXT NOT NULL REFERENCES webhooks (url) ON DELETE CASCADE,
  PRIMARY KEY (kind, url)
) STRICT, WITHOUT ROWID;
CREATE TABLE outbox (
  no       INTEGER PRIMARY KEY AUTOINCREMENT,
  -- By which the receiver knows a delivery that comes again.
  id       TEXT NOT NULL UNIQUE,
  url      TEXT NOT NULL REFERENCES webhooks (url) ON DELETE CASCADE,
  kind     TEXT NOT NULL,
  at       INTEGER NOT NULL,
  run      TEXT,
  request  TEXT,
  -- Of a chat.
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
-- A chat's window may be counted in tokens instead of characters.
ALTER TABLE chats ADD COLUMN window_tokens INTEGER;

-- Tokens of an entry's text at a revision, kept once they were counted.
CREATE TABLE chat_tokens (
  message  INTEGER PRIMARY KEY REFERENCES chat_messages (id),
  revision INTEGER NOT NULL,
  tokens   INTEGER NOT NULL
) STRICT;
-- Since when a run is silent, and the event that said so.
ALTER TABLE runs ADD COLUMN stalled_at INTEGER;
ALTER TABLE runs ADD COLUMN stall_seq INTEGER;
-- What the user should know about how its newest attempt was started.
ALTER TABLE runs ADD COLUMN note TEXT;
-- What a directory says about agents and somebody has trusted: a hash over it.
CREATE TABLE trusted (
  cwd  TEXT NOT NULL,
  hash TEXT NOT NULL,
  by   TEXT NOT NULL,
  at   INTEGER NOT NULL,
  PRIMARY KEY (cwd, hash)
) STRICT, WITHOUT ROWID;
-- Edits and pins, numbered within their chat, so that whoever watches it is told of them.
ALTER TABLE chats ADD COLUMN changes INTEGER NOT NULL DEFAULT 0;
-- The number of an entry's newest change; 0: it is as it was written.
ALTER TABLE chat_messages ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
CREATE INDEX chat_messages_changed ON chat_messages (chat, changed) WHERE changed > 0;
