-- Chats. Entries are never removed; an edit keeps the old text as a revision.
CREATE TABLE chats (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  kind         TEXT NOT NULL CHECK (kind IN ('chat', 'direct', 'board')),
  title        TEXT NOT NULL,
  owner        TEXT NOT NULL,
  root         TEXT,
  private      INTEGER NOT NULL DEFAULT 0,
  -- Finds the one direct chat of two, and the one board of a root.
  pair         TEXT UNIQUE,
  template     TEXT,
  instructions TEXT,
  window_chars INTEGER NOT NULL,
  turns_max    INTEGER NOT NULL,
  branch_of    INTEGER REFERENCES chats (id),
  branch_seq   INTEGER,
  -- How much of the conversation it took over from there.
  branch_said  INTEGER NOT NULL DEFAULT 0,
  archived     INTEGER NOT NULL DEFAULT 0,
  -- Its entries say what a file says that they were.
  imported     INTEGER NOT NULL DEFAULT 0,
  started_by   TEXT NOT NULL,
  started_name TEXT NOT NULL,
  started_at   INTEGER NOT NULL,
  last_at      INTEGER NOT NULL,
  last_seq     INTEGER NOT NULL DEFAULT 0,
  -- Entries that are part of the conversation.
  said         INTEGER NOT NULL DEFAULT 0,
  -- The newest summary.
  summary_seq  INTEGER,
  CHECK ((branch_of IS NULL) = (branch_seq IS NULL)),
  CHECK ((kind = 'chat') = (pair IS NULL))
) STRICT;
CREATE INDEX chats_recent ON chats (archived, last_at, id);
CREATE INDEX chats_owner ON chats (owner, archived, last_at, id);
CREATE INDEX chats_branches ON chats (branch_of) WHERE branch_of IS NOT NULL;

CREATE TABLE chat_members (
  chat        INTEGER NOT NULL REFERENCES chats (id),
  who         TEXT NOT NULL,
  name        TEXT NOT NULL,
  -- Null: has only read.
  joined_at   INTEGER,
  -- Everything up to here was read.
  read_seq    INTEGER NOT NULL DEFAULT 0,
  -- The newest entry that names this participant.
  mention_seq INTEGER NOT NULL DEFAULT 0,
  said        INTEGER NOT NULL DEFAULT 0,
  seen_at     INTEGER,
  PRIMARY KEY (chat, who)
) STRICT, WITHOUT ROWID;
CREATE INDEX chat_members_who ON chat_members (who, chat);

CREATE TABLE chat_messages (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  chat      INTEGER NOT NULL REFERENCES chats (id),
  seq       INTEGER NOT NULL,
  kind      TEXT NOT NULL,
  author    TEXT NOT NULL,
  name      TEXT NOT NULL,
  label     TEXT,
  text      TEXT NOT NULL,
  at        INTEGER NOT NULL,
  reply_to  INTEGER,
  -- How many agents have answered one another up to here.
  hops      INTEGER NOT NULL DEFAULT 0,
  pinned    INTEGER NOT NULL DEFAULT 0,
  revision  INTEGER NOT NULL DEFAULT 0,
  edited_at INTEGER,
  key       TEXT,
  UNIQUE (chat, seq),
  CHECK ((revision = 0) = (edited_at IS NULL))
) STRICT;
CREATE INDEX chat_messages_pinned ON chat_messages (chat, seq) WHERE pinned = 1;
CREATE INDEX chat_messages_replies ON chat_messages (chat, reply_to) WHERE reply_to IS NOT NULL;
CREATE UNIQUE INDEX chat_messages_key ON chat_messages (chat, key) WHERE key IS NOT NULL;
CREATE TRIGGER chat_messages_stay BEFORE DELETE ON chat_messages BEGIN SELECT RAISE (ABORT, 'an entry of a chat stays'); END;
CREATE TRIGGER chat_messages_keep_their_place BEFORE UPDATE OF chat, seq, author, at ON chat_messages WHEN OLD.key IS NULL
  BEGIN SELECT RAISE (ABORT, 'an entry of a chat keeps its place and its author'); END;

-- What an entry said before an edit.
CREATE TABLE chat_revisions (
  message  INTEGER NOT NULL REFERENCES chat_messages (id),
  revision INTEGER NOT NULL,
  author   TEXT NOT NULL,
  name     TEXT NOT NULL,
  text     TEXT NOT NULL,
  at       INTEGER NOT NULL,
  PRIMARY KEY (message, revision)
) STRICT, WITHOUT ROWID;

-- Messages that agents have to answer, each by one run.
CREATE TABLE chat_turns (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  chat    INTEGER NOT NULL REFERENCES chats (id),
  agent   TEXT NOT NULL,
  purpose TEXT NOT NULL DEFAULT 'answer' CHECK (purpose IN ('answer', 'summary')),
  message INTEGER NOT NULL,
  hops    INTEGER NOT NULL,
  cwd     TEXT NOT NULL,
  env     TEXT NOT NULL,
  state   TEXT NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'answered', 'failed', 'cancelled')),
  run     TEXT,
  entry   INTEGER,
  at      INTEGER NOT NULL,
  CHECK ((state IN ('answered', 'failed')) = (entry IS NOT NULL)),
  CHECK (state <> 'running' OR run IS NOT NULL)
) STRICT;
-- One at a time for each agent and chat.
CREATE UNIQUE INDEX chat_turns_one ON chat_turns (chat, agent) WHERE state = 'running';
CREATE INDEX chat_turns_open ON chat_turns (chat, agent, id) WHERE state IN ('queued', 'running');
CREATE INDEX chat_turns_run ON chat_turns (run) WHERE run IS NOT NULL;
CREATE INDEX chat_turns_message ON chat_turns (chat, message);

-- The chat is a column of the index, so that a search within one chat touches nothing else.
CREATE VIEW chat_search AS SELECT id, 'c' || chat AS chat, text FROM chat_messages;
CREATE VIRTUAL TABLE chat_fts USING fts5 (chat, text, content = 'chat_search', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2');
