-- `no` is the order of dispatch, which ids do not show within one millisecond or after the clock was set back.
CREATE TABLE runs (
  no               INTEGER PRIMARY KEY AUTOINCREMENT,
  id               TEXT NOT NULL UNIQUE,
  name             TEXT NOT NULL UNIQUE,
  agent            TEXT NOT NULL,
  task             TEXT NOT NULL,
  cwd              TEXT NOT NULL,
  patience_ms      INTEGER NOT NULL,
  prompt_via       TEXT NOT NULL,
  owner            TEXT NOT NULL,
  parent           TEXT,
  root             TEXT NOT NULL,
  retry_of         TEXT,
  state            TEXT NOT NULL CHECK (state IN ('queued', 'starting', 'running', 'stopping', 'stopped', 'finished')),
  stop_reason      TEXT,
  until_at         INTEGER,
  outcome          TEXT,
  failure          TEXT,
  exit_code        INTEGER,
  exit_signal      INTEGER,
  detail           TEXT,
  attempt          INTEGER NOT NULL DEFAULT 0,
  created_at       INTEGER NOT NULL,
  started_at       INTEGER,
  ended_at         INTEGER,
  updated_at       INTEGER NOT NULL,
  summary          TEXT,
  claim            TEXT CHECK (claim IN ('success', 'completed', 'partial_success', 'error')),
  result           TEXT,
  percent          INTEGER,
  progress         TEXT,
  annotation       TEXT,
  -- The number of ignored signals, and why the last one was ignored.
  ignored          INTEGER NOT NULL DEFAULT 0,
  ignored_why      TEXT,
  checkpoint       TEXT,
  resolution       TEXT,
  next_step        TEXT,
  choice           TEXT,
  eta              TEXT,
  containment      TEXT,
  swept            INTEGER,
  output_left_open INTEGER NOT NULL DEFAULT 0,
  active_ms        INTEGER NOT NULL DEFAULT 0,
  session          TEXT,
  input_tokens     INTEGER,
  cached_tokens    INTEGER,
  output_tokens    INTEGER,
  cost_micros      INTEGER,
  pending          INTEGER NOT NULL DEFAULT 0,
  blocking_pending INTEGER NOT NULL DEFAULT 0,
  unread           INTEGER NOT NULL DEFAULT 0,
  -- The number of delegations that hold the run, and its rank in the queue.
  holding          INTEGER NOT NULL DEFAULT 0,
  rank             INTEGER NOT NULL DEFAULT 1,
  last_seq         INTEGER NOT NULL DEFAULT 0,
  end_seq          INTEGER,
  CHECK ((state IN ('stopping', 'stopped')) = (stop_reason IS NOT NULL)),
  CHECK ((state = 'stopped') = (until_at IS NOT NULL)),
  CHECK ((state = 'finished') = (outcome IS NOT NULL)),
  CHECK ((state = 'finished') = (ended_at IS NOT NULL)),
  CHECK (pending >= 0 AND blocking_pending >= 0 AND unread >= 0 AND holding >= 0)
) STRICT;
CREATE INDEX runs_queue ON runs (rank, no) WHERE state = 'queued';
CREATE INDEX runs_live ON runs (state, id) WHERE state IN ('starting', 'running', 'stopping');
CREATE INDEX runs_dir ON runs (cwd, no, id, name) WHERE state IN ('starting', 'running', 'stopping');
CREATE INDEX runs_stopped ON runs (until_at) WHERE state = 'stopped';
CREATE INDEX runs_finished ON runs (ended_at) WHERE state = 'finished';
CREATE INDEX runs_unfinished ON runs (owner, no) WHERE state <> 'finished';
CREATE INDEX runs_owner ON runs (owner, no);
CREATE INDEX runs_ends ON runs (end_seq) WHERE end_seq IS NOT NULL;
CREATE INDEX runs_root ON runs (root);
CREATE INDEX runs_parent ON runs (parent, no) WHERE parent IS NOT NULL;
CREATE INDEX runs_lent ON runs (id) WHERE holding > 0 AND state IN ('starting', 'running', 'stopping');
CREATE TRIGGER runs_finished_never_change BEFORE UPDATE OF state, outcome ON runs WHEN OLD.state = 'finished'
  BEGIN SELECT RAISE (ABORT, 'a finished run never changes'); END;

-- The input of a run. A separate table, because it can be large and is needed only to start an attempt.
CREATE TABLE run_inputs (
  run    TEXT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  prompt TEXT NOT NULL,
  spec   TEXT NOT NULL,
  -- The success criteria as text, and the acceptance command as a list.
  criteria TEXT,
  accept   TEXT
) STRICT;

-- A run's completion report, and the evidence collected after its last attempt.
CREATE TABLE reports (
  run    TEXT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  report TEXT,
  saw    TEXT
) STRICT;

CREATE TABLE attempts (
  run        TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  n          INTEGER NOT NULL,
  token_hash BLOB NOT NULL,
  claimed_at INTEGER NOT NULL,
  started_at INTEGER,
  ended_at   INTEGER,
  fact       INTEGER NOT NULL DEFAULT 0,
  -- How the agent ended, while the supervisor is still collecting evidence.
  agent_end  TEXT,
  PRIMARY KEY (run, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE requests (
  no           INTEGER PRIMARY KEY AUTOINCREMENT,
  id           TEXT NOT NULL UNIQUE,
  run          TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  kind         TEXT NOT NULL CHECK (kind IN ('question', 'approval', 'delegation')),
  question     TEXT NOT NULL,
  context      TEXT,
  options      TEXT NOT NULL DEFAULT '[]',
  fallback     TEXT,
  blocking     INTEGER NOT NULL,
  by_block     INTEGER NOT NULL DEFAULT 0,
  patience_ms  INTEGER NOT NULL,
  status       TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'answered', 'retrieved', 'expired', 'withdrawn')),
  -- The subject of an approval or a delegation, in JSON. Its text is in `question`.
  matter       TEXT,
  -- The number of the first question of the group.
  group_no     INTEGER,
  answer       TEXT,
  verdict      TEXT CHECK (verdict IN ('approved', 'denied')),
  changes      TEXT,
  -- The attempt that received the answer in its prompt.
  told         INTEGER,
  -- The child run of a delegation, how it ended, and whether the asking run is held until then.
  child        TEXT,
  child_name   TEXT,
  outcome      TEXT,
  held         INTEGER NOT NULL DEFAULT 0,
  answered_by  TEXT,
  asked_at     INTEGER NOT NULL,
  expires_at   INTEGER NOT NULL,
  answered_at  INTEGER,
  retrieved_at INTEGER,
  ended_at     INTEGER,
  CHECK ((status IN ('answered', 'retrieved')) = (answer IS NOT NULL)),
  CHECK ((answer IS NULL) = (answered_at IS NULL) AND (answer IS NULL) = (answered_by IS NULL)),
  CHECK ((status = 'retrieved') = (retrieved_at IS NOT NULL)),
  CHECK ((kind = 'question') = (matter IS NULL)),
  CHECK (verdict IS NULL OR answer IS NOT NULL),
  CHECK (child IS NULL OR kind = 'delegation' AND verdict = 'approved'),
  CHECK (held = 0 OR child IS NOT NULL),
  CHECK ((child IS NULL) = (child_name IS NULL)),
  CHECK (outcome IS NULL OR child IS NOT NULL AND held = 0),
  CHECK ((status IN ('expired', 'withdrawn')) = (ended_at IS NOT NULL))
) STRICT;
CREATE INDEX requests_pending ON requests (run, no) WHERE status = 'pending';
CREATE INDEX requests_inbox ON requests (no) WHERE status = 'pending';
CREATE INDEX requests_due ON requests (expires_at) WHERE status = 'pending';
CREATE INDEX requests_run ON requests (run, no);
CREATE UNIQUE INDEX requests_child ON requests (child) WHERE child IS NOT NULL;
CREATE INDEX requests_group ON requests (group_no) WHERE group_no IS NOT NULL;
CREATE TRIGGER requests_move_forward BEFORE UPDATE OF status ON requests
  WHEN NEW.status <> OLD.status AND NOT (
    (OLD.status = 'pending' AND NEW.status IN ('answered', 'expired', 'withdrawn')) OR (OLD.status = 'answered' AND NEW.status = 'retrieved'))
  BEGIN SELECT RAISE (ABORT, 'a request never moves back'); END;

-- A run waits only for younger runs, so waits form no cycle.
CREATE TRIGGER requests_wait_for_the_younger BEFORE UPDATE OF held ON requests
  WHEN NEW.held = 1 AND (SELECT no FROM runs WHERE id = NEW.child) <= (SELECT no FROM runs WHERE id = NEW.run)
  BEGIN SELECT RAISE (ABORT, 'a run waits for younger ones only'); END;

CREATE TABLE events (
  seq     INTEGER PRIMARY KEY AUTOINCREMENT,
  at      INTEGER NOT NULL,
  kind    TEXT NOT NULL,
  run     TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  request TEXT,
  by      TEXT NOT NULL,
  text    TEXT NOT NULL,
  -- The signal that caused the event: its type, and its source (a tool or a block).
  signal  TEXT,
  source  TEXT
) STRICT;
CREATE INDEX events_run ON events (run, seq);

CREATE TABLE messages (
  no           INTEGER PRIMARY KEY AUTOINCREMENT,
  id           TEXT NOT NULL UNIQUE,
  run          TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  sender       TEXT NOT NULL,
  text         TEXT NOT NULL,
  sent_at      INTEGER NOT NULL,
  delivery     TEXT NOT NULL DEFAULT 'queued' CHECK (delivery IN ('queued', 'live', 'tool_result', 'prompt')),
  delivered_at INTEGER,
  CHECK ((delivery = 'queued') = (delivered_at IS NULL))
) STRICT;
CREATE INDEX messages_queued ON messages (run, no) WHERE delivery = 'queued';

-- Replies to calls, by idempotency key. Rows and the keys of Adjutant's clients are ordered by time, so a commit
-- writes only the last pages of the table and of the index.
CREATE TABLE keys (
  no        INTEGER PRIMARY KEY,
  key       TEXT NOT NULL,
  principal TEXT NOT NULL,
  body_hash BLOB NOT NULL,
  reply     TEXT NOT NULL,
  at        INTEGER NOT NULL,
  UNIQUE (key, principal)
) STRICT;

-- Stored waits that an MCP client polls and returns to.
CREATE TABLE tasks (
  id         TEXT NOT NULL PRIMARY KEY,
  principal  TEXT NOT NULL,
  wait       TEXT NOT NULL,
  status     TEXT NOT NULL CHECK (status IN ('working', 'completed', 'cancelled')),
  result     TEXT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  ttl_ms     INTEGER NOT NULL,
  CHECK ((status = 'completed') = (result IS NOT NULL))
) STRICT;
CREATE INDEX tasks_created ON tasks (created_at);
-- Chats. Entries are never removed; an edit keeps the old text as a revision.
CREATE TABLE chats (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  kind         TEXT NOT NULL CHECK (kind IN ('chat', 'direct', 'board')),
  title        TEXT NOT NULL,
  owner        TEXT NOT NULL,
  root         TEXT,
  private      INTEGER NOT NULL DEFAULT 0,
  -- The key of a unique chat: the direct chat of two participants, or the board of a root.
  pair         TEXT UNIQUE,
  template     TEXT,
  instructions TEXT,
  window_chars INTEGER NOT NULL,
  turns_max    INTEGER NOT NULL,
  branch_of    INTEGER REFERENCES chats (id),
  branch_seq   INTEGER,
  -- The number of conversation entries inherited from that chat.
  branch_said  INTEGER NOT NULL DEFAULT 0,
  archived     INTEGER NOT NULL DEFAULT 0,
  -- Imported from a file; the entries are not verified.
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
  -- NULL: the participant has only read.
  joined_at   INTEGER,
  -- The last entry that the participant has read.
  read_seq    INTEGER NOT NULL DEFAULT 0,
  -- The newest entry that mentions this participant.
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
  -- The length of the chain of agents answering each other that leads to this entry.
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

-- Earlier texts of edited entries.
CREATE TABLE chat_revisions (
  message  INTEGER NOT NULL REFERENCES chat_messages (id),
  revision INTEGER NOT NULL,
  author   TEXT NOT NULL,
  name     TEXT NOT NULL,
  text     TEXT NOT NULL,
  at       INTEGER NOT NULL,
  PRIMARY KEY (message, revision)
) STRICT, WITHOUT ROWID;

-- Turns: messages that an agent must answer, each with one run.
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
-- One running turn for each agent and chat.
CREATE UNIQUE INDEX chat_turns_one ON chat_turns (chat, agent) WHERE state = 'running';
CREATE INDEX chat_turns_open ON chat_turns (chat, agent, id) WHERE state IN ('queued', 'running');
CREATE INDEX chat_turns_run ON chat_turns (run) WHERE run IS NOT NULL;
CREATE INDEX chat_turns_message ON chat_turns (chat, message);

-- The chat is a column of the index, so that a search within one chat reads nothing else.
CREATE VIEW chat_search AS SELECT id, 'c' || chat AS chat, text FROM chat_messages;
CREATE VIRTUAL TABLE chat_fts USING fts5 (chat, text, content = 'chat_search', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2');
