-- `no` is the order of dispatch; two ids of one millisecond, or a clock set back, do not tell it.
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
  -- Signals without effect: how many, and why the last one had none.
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
  -- Delegations that it waits for; its place in the queue's order.
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

-- What a run was given; apart, because it can be large and is needed only to start an attempt.
CREATE TABLE run_inputs (
  run    TEXT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  prompt TEXT NOT NULL,
  spec   TEXT NOT NULL,
  -- What success means, in words, and as a command (a list of words).
  criteria TEXT,
  accept   TEXT
) STRICT;

-- A run's completion report, and what was seen of it when its last attempt had ended.
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
  -- How its agent ended, while its supervisor still looks at what it left behind.
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
  -- Of an approval or a delegation, in JSON; the text that names it is the question.
  matter       TEXT,
  -- The first of those that were asked together.
  group_no     INTEGER,
  answer       TEXT,
  verdict      TEXT CHECK (verdict IN ('approved', 'denied')),
  changes      TEXT,
  -- The attempt that was told the answer with its prompt.
  told         INTEGER,
  -- The run that a delegation started, how that ended, and whether the asker is held until then.
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

-- Whoever waits for a run is older than it: waiting forms no circle.
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
  -- The signal that it comes from: its type, and whether a tool or a block carried it.
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

-- Replies to calls that may be repeated. Rows come in the order of time, and so do the keys that our
-- clients draw: both ends of a commit's work are the last pages.
CREATE TABLE keys (
  no        INTEGER PRIMARY KEY,
  key       TEXT NOT NULL,
  principal TEXT NOT NULL,
  body_hash BLOB NOT NULL,
  reply     TEXT NOT NULL,
  at        INTEGER NOT NULL,
  UNIQUE (key, principal)
) STRICT;

-- Waits that an MCP client polls and comes back to.
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
