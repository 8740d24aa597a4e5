-- Schema version 5: chats.
-- Two who write to each other have one chat, whichever tree of runs either belongs to.
UPDATE OR IGNORE chats SET pair = owner || '|' || substr(pair, length(owner) + length(root) + 2) WHERE kind = 'direct' AND root IS NOT NULL;
-- `Board` is now the board of the owner.
UPDATE chats SET title = 'Board of ' || (SELECT name FROM runs WHERE id = chats.root)
  WHERE kind = 'board' AND root IN (SELECT id FROM runs);
-- The entry of a chat that a message to a run carries whole: who has one has the other.
ALTER TABLE messages ADD COLUMN entry INTEGER;
