-- When the newest part came of a file that is not imported whole. Until it is, nobody sees the chat.
ALTER TABLE chats ADD COLUMN importing INTEGER;
CREATE INDEX chats_importing ON chats (importing) WHERE importing IS NOT NULL;
-- What was never imported whole may go again.
DROP TRIGGER chat_messages_stay;
CREATE TRIGGER chat_messages_stay BEFORE DELETE ON chat_messages WHEN (SELECT importing FROM chats WHERE id = OLD.chat) IS NULL
  BEGIN SELECT RAISE (ABORT, 'an entry of a chat stays'); END;
