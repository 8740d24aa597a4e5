-- Makes words in text without spaces searchable: separators are inserted between its characters (see the function
-- `set_apart`). Only entries and documents with such text are indexed again.
INSERT INTO chat_fts (chat_fts, rowid, tags, text) SELECT 'delete', id, tags, text FROM chat_search WHERE text <> set_apart(text);
DROP VIEW chat_search;
CREATE VIEW chat_search AS
  SELECT m.id, 'c' || m.chat || ' o' || hex(c.owner) || ' r' || coalesce(hex(c.root), '') || ' a' || hex(m.author)
    || CASE WHEN instr(m.text, '?') > 0 THEN ' q' ELSE '' END AS tags, set_apart(m.text) AS text
  FROM chat_messages m JOIN chats c ON c.id = m.chat;
INSERT INTO chat_fts (rowid, tags, text) SELECT s.id, s.tags, s.text FROM chat_messages m JOIN chat_search s ON s.id = m.id WHERE m.text <> s.text;
UPDATE search_fts SET text = set_apart(text) WHERE text <> set_apart(text);
-- The last indexed chat entry. The next search indexes the few newer ones.
CREATE TABLE chat_seen (
  id    INTEGER PRIMARY KEY CHECK (id = 1),
  entry INTEGER NOT NULL
) STRICT;
INSERT INTO chat_seen SELECT 1, coalesce(max(id), 0) FROM chat_messages;
-- When the newest part of an incomplete import arrived. The chat is hidden until the import is complete.
ALTER TABLE chats ADD COLUMN importing INTEGER;
CREATE INDEX chats_importing ON chats (importing) WHERE importing IS NOT NULL;
-- Entries of an incomplete import may be removed.
DROP TRIGGER chat_messages_stay;
CREATE TRIGGER chat_messages_stay BEFORE DELETE ON chat_messages WHEN (SELECT importing FROM chats WHERE id = OLD.chat) IS NULL
  BEGIN SELECT RAISE (ABORT, 'an entry of a chat stays'); END;
