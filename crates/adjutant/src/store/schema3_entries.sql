-- Up to which entry of the chats the index is made: the few newest are left for whoever searches.
CREATE TABLE chat_seen (
  id    INTEGER PRIMARY KEY CHECK (id = 1),
  entry INTEGER NOT NULL
) STRICT;
INSERT INTO chat_seen SELECT 1, coalesce(max(id), 0) FROM chat_messages;
