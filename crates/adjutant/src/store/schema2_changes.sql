-- Edits and pins, numbered within their chat, so that whoever watches it is told of them.
ALTER TABLE chats ADD COLUMN changes INTEGER NOT NULL DEFAULT 0;
-- The number of an entry's newest change; 0: it is as it was written.
ALTER TABLE chat_messages ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
CREATE INDEX chat_messages_changed ON chat_messages (chat, changed) WHERE changed > 0;
