-- Words within text that is written without blanks are found: what is indexed is such text with its characters set
-- apart (see the function `set_apart`). Only entries and documents that have any are indexed anew.
INSERT INTO chat_fts (chat_fts, rowid, tags, text) SELECT 'delete', id, tags, text FROM chat_search WHERE text <> set_apart(text);
DROP VIEW chat_search;
CREATE VIEW chat_search AS
  SELECT m.id, 'c' || m.chat || ' o' || hex(c.owner) || ' r' || coalesce(hex(c.root), '') || ' a' || hex(m.author)
    || CASE WHEN instr(m.text, '?') > 0 THEN ' q' ELSE '' END AS tags, set_apart(m.text) AS text
  FROM chat_messages m JOIN chats c ON c.id = m.chat;
INSERT INTO chat_fts (rowid, tags, text) SELECT s.id, s.tags, s.text FROM chat_messages m JOIN chat_search s ON s.id = m.id WHERE m.text <> s.text;
UPDATE search_fts SET text = set_apart(text) WHERE text <> set_apart(text);
-- Up to which entry of the chats the index is made: the few newest are left for whoever searches.
CREATE TABLE chat_seen (
  id    INTEGER PRIMARY KEY CHECK (id = 1),
  entry INTEGER NOT NULL
) STRICT;
INSERT INTO chat_seen SELECT 1, coalesce(max(id), 0) FROM chat_messages;
-- When the newest part came of a file that is not imported whole. Until it is, nobody sees the chat.
ALTER TABLE chats ADD COLUMN importing INTEGER;
CREATE INDEX chats_importing ON chats (importing) WHERE importing IS NOT NULL;
-- What was never imported whole may go again.
DROP TRIGGER chat_messages_stay;
CREATE TRIGGER chat_messages_stay BEFORE DELETE ON chat_messages WHEN (SELECT importing FROM chats WHERE id = OLD.chat) IS NULL
  BEGIN SELECT RAISE (ABORT, 'an entry of a chat stays'); END;
