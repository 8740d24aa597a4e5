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
