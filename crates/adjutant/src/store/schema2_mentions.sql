-- Finds the chats in which something unread is for somebody.
CREATE INDEX chat_members_named ON chat_members (who, chat) WHERE mention_seq > read_seq;
