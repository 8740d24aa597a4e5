-- A chat's window may be counted in tokens instead of characters.
ALTER TABLE chats ADD COLUMN window_tokens INTEGER;

-- Tokens of an entry's text at a revision, kept once they were counted.
CREATE TABLE chat_tokens (
  message  INTEGER PRIMARY KEY REFERENCES chat_messages (id),
  revision INTEGER NOT NULL,
  tokens   INTEGER NOT NULL
) STRICT;
