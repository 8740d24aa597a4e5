-- Schema version 5: chats.
-- Two who write to each other have one chat, whichever tree of runs either belongs to.
UPDATE OR IGNORE chats SET pair = owner || '|' || substr(pair, length(owner) + length(root) + 2) WHERE kind = 'direct' AND root IS NOT NULL;
-- `Board` is now the board of the owner.
UPDATE chats SET title = 'Board of ' || (SELECT name FROM runs WHERE id = chats.root)
  WHERE kind = 'board' AND root IN (SELECT id FROM runs);
-- The entry of a chat that a message to a run carries whole: who has one has the other.
ALTER TABLE messages ADD COLUMN entry INTEGER;
-- Composed and decomposed characters (NFC and NFD) find each other: what is indexed is composed (see the function
-- `index_text`). Only entries and documents that this changes are indexed anew.
INSERT INTO chat_fts (chat_fts, rowid, tags, text) SELECT 'delete', s.id, s.tags, s.text FROM chat_messages m JOIN chat_search s ON s.id = m.id
  WHERE s.text <> index_text(m.text) AND m.id <= (SELECT entry FROM chat_seen);
DROP VIEW chat_search;
CREATE VIEW chat_search AS
  SELECT m.id, 'c' || m.chat || ' o' || hex(c.owner) || ' r' || coalesce(hex(c.root), '') || ' a' || hex(m.author)
    || CASE WHEN instr(m.text, '?') > 0 THEN ' q' ELSE '' END AS tags, index_text(m.text) AS text
  FROM chat_messages m JOIN chats c ON c.id = m.chat;
INSERT INTO chat_fts (rowid, tags, text) SELECT s.id, s.tags, s.text FROM chat_messages m JOIN chat_search s ON s.id = m.id
  WHERE s.text <> set_apart(m.text) AND m.id <= (SELECT entry FROM chat_seen);
UPDATE search_fts SET text = reindex_text(text) WHERE text <> reindex_text(text);
