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
