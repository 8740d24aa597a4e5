-- The schema of a new store. A change needs a migration (CONTRIBUTING.md: a stored field of a run). Times are in
-- milliseconds, and truth values are 0 and 1. `_seq` is a position in the history of events.

CREATE TABLE runs (
  -- The order of dispatch, which ids do not show within one millisecond or after the clock was set back.
  no                  INTEGER PRIMARY KEY AUTOINCREMENT,
  id                  TEXT NOT NULL UNIQUE,
  name                TEXT NOT NULL UNIQUE,
  agent               TEXT NOT NULL,
  -- Why it has this agent, if it was chosen from several.
  agent_why           TEXT,
  -- The first line of the prompt.
  task                TEXT NOT NULL,
  cwd                 TEXT NOT NULL,
  patience_ms         INTEGER NOT NULL,
  prompt_via          TEXT NOT NULL,
  -- The policies of its repository at its start: the directory and the text, in JSON.
  repository_policies TEXT,

  owner               TEXT NOT NULL,
  parent              TEXT,
  root                TEXT NOT NULL,
  retry_of            TEXT,

  state               TEXT NOT NULL CHECK (state IN ('queued', 'starting', 'running', 'stopping', 'stopped', 'finished')),
  stop_reason         TEXT,
  -- When a stopped run fails if it is not resumed.
  until_at            INTEGER,
  outcome             TEXT,
  failure             TEXT,
  exit_code           INTEGER,
  exit_signal         INTEGER,
  detail              TEXT,
  -- How a successful run fell short of its dispatcher's requirements.
  shortfall           TEXT CHECK (shortfall IN ('not_accepted', 'not_checked', 'contradicted')),
  attempt             INTEGER NOT NULL DEFAULT 0,
  created_at          INTEGER NOT NULL,
  started_at          INTEGER,
  ended_at            INTEGER,
  -- When it finished, on the steady clock.
  settled_at          INTEGER,
  updated_at          INTEGER NOT NULL,

  -- Its rank in the queue of its pool, and the number of delegations that hold it.
  pool                TEXT NOT NULL DEFAULT 'default',
  rank                INTEGER NOT NULL DEFAULT 1,
  holding             INTEGER NOT NULL DEFAULT 0,
  -- The number of runs that it still waits for, and what happens if one of them fails.
  after_open          INTEGER NOT NULL DEFAULT 0,
  after_failed        TEXT NOT NULL DEFAULT 'cancel',

  -- What the run has stated.
  summary             TEXT,
  claim               TEXT CHECK (claim IN ('success', 'completed', 'partial_success', 'error')),
  percent             INTEGER,
  progress            TEXT,
  eta                 TEXT,
  annotation          TEXT,
  -- When the newest attempt has reported its result, and the event that recorded it. NULL: it has not, or has made
  -- a statement since.
  reported_at         INTEGER,
  report_seq          INTEGER,
  -- The number of ignored signals, and why the last one was ignored.
  ignored             INTEGER NOT NULL DEFAULT 0,
  ignored_why         TEXT,

  -- The end of the agent's last message, the length of the whole one, why it is not a result, and the reconstructed
  -- result.
  result              TEXT,
  result_bytes        INTEGER,
  result_gap          TEXT,
  reconstructed       TEXT,

  checkpoint          TEXT,
  -- The parent's resolution of the blocker, next step, and choice after an error.
  resolution          TEXT,
  next_step           TEXT,
  choice              TEXT,
  -- The vendor's session, in which a later attempt can continue.
  session             TEXT,

  -- A note for the user on how the newest attempt was started.
  note                TEXT,
  containment         TEXT,
  -- The requested fence and what is enforced, in JSON.
  fence               TEXT,
  -- The number of processes that were killed at the end of the attempt.
  swept               INTEGER,
  output_left_open    INTEGER NOT NULL DEFAULT 0,
  -- The ports of the newest attempt: the first one, and how many. Others may use them once the run is not live.
  port_base           INTEGER,
  port_count          INTEGER,
  -- The resource use of its processes, and the known sub-agents that the CLI started by itself, in JSON.
  resources           TEXT,
  subagents           TEXT,

  -- The active time, and the start of the part that it does not contain yet.
  active_ms           INTEGER NOT NULL DEFAULT 0,
  active_since        INTEGER,
  -- The active time at which the run should finish by its newest estimate; when it exceeded that, and the event
  -- that recorded it.
  estimate_ms         INTEGER,
  overdue_at          INTEGER,
  overdue_seq         INTEGER,
  -- When the run fell silent, and the event that recorded it.
  stalled_at          INTEGER,
  stall_seq           INTEGER,
  -- The retry condition of the CLI, in JSON, and the event that recorded it.
  retrying            TEXT,
  retrying_seq        INTEGER,
  -- Why a snapshot of its tree could not be taken, and the event that recorded it.
  snapshot_problem    TEXT,
  snapshot_seq        INTEGER,
  -- The newest events about conflicts, overlaps of announcements, and budgets.
  conflict_seq        INTEGER,
  overlap_seq         INTEGER,
  budget_seq          INTEGER,

  input_tokens        INTEGER,
  cached_tokens       INTEGER,
  output_tokens       INTEGER,
  cost_micros         INTEGER,
  -- The number of tokens whose cost is unknown, and whether a part of the cost was computed from configured prices.
  unpriced_tokens     INTEGER NOT NULL DEFAULT 0,
  is_priced           INTEGER NOT NULL DEFAULT 0,
  -- The totals that the agent stated last, in JSON.
  usage_totals        TEXT,

  pending             INTEGER NOT NULL DEFAULT 0,
  blocking_pending    INTEGER NOT NULL DEFAULT 0,
  -- Answers that the run has not read.
  unread              INTEGER NOT NULL DEFAULT 0,
  -- The newest event, and the newest stop or end. A queued run has an `end_seq` while it is held, because a run
  -- that it starts after has failed.
  last_seq            INTEGER NOT NULL DEFAULT 0,
  end_seq             INTEGER,
  -- The newest stop or end that the owner was notified of. The largest number: the owner is notified in another
  -- way, such as a chat that gets the run's answer.
  notified_seq        INTEGER NOT NULL DEFAULT 0,

  CHECK ((state IN ('stopping', 'stopped')) = (stop_reason IS NOT NULL)),
  CHECK ((state = 'stopped') = (until_at IS NOT NULL)),
  CHECK ((state = 'finished') = (outcome IS NOT NULL)),
  CHECK ((state = 'finished') = (ended_at IS NOT NULL)),
  CHECK (pending >= 0 AND blocking_pending >= 0 AND unread >= 0 AND holding >= 0)
) STRICT;
CREATE INDEX runs_queue ON runs (pool, after_open, rank, owner, agent, no) WHERE state = 'queued';
CREATE INDEX runs_held ON runs (end_seq) WHERE state = 'queued' AND end_seq IS NOT NULL;
CREATE INDEX runs_live ON runs (state, id) WHERE state IN ('starting', 'running', 'stopping');
CREATE INDEX runs_dir ON runs (cwd, no, id, name) WHERE state IN ('starting', 'running', 'stopping');
CREATE INDEX runs_lent ON runs (id) WHERE holding > 0 AND state IN ('starting', 'running', 'stopping');
CREATE INDEX runs_estimates ON runs (active_since + estimate_ms - active_ms)
  WHERE state = 'running' AND active_since IS NOT NULL AND estimate_ms IS NOT NULL AND overdue_seq IS NULL;
CREATE INDEX runs_stopped ON runs (until_at) WHERE state = 'stopped';
CREATE INDEX runs_finished ON runs (ended_at) WHERE state = 'finished';
CREATE INDEX runs_settled ON runs (settled_at) WHERE state = 'finished';
CREATE INDEX runs_unfinished ON runs (owner, no) WHERE state <> 'finished';
CREATE INDEX runs_owner ON runs (owner, no);
CREATE INDEX runs_root ON runs (root);
CREATE INDEX runs_parent ON runs (parent, no) WHERE parent IS NOT NULL;
CREATE INDEX runs_ends ON runs (end_seq) WHERE end_seq IS NOT NULL;
CREATE INDEX runs_unnotified ON runs (owner, end_seq) WHERE end_seq > notified_seq;
CREATE TRIGGER runs_finished_never_change BEFORE UPDATE OF state, outcome ON runs WHEN OLD.state = 'finished'
  BEGIN SELECT RAISE (ABORT, 'a finished run never changes'); END;

-- The input of a run: large, and needed only to start an attempt.
CREATE TABLE run_inputs (
  run       TEXT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  prompt    TEXT NOT NULL,
  spec      TEXT NOT NULL,
  -- The success criteria as text, and the acceptance command as a list.
  criteria  TEXT,
  accept    TEXT,
  -- The file with the variables that the dispatcher set, in the directory of the credentials. Kept as long as the
  -- run, because a later attempt or a retry needs it.
  variables TEXT
) STRICT;
CREATE INDEX run_inputs_variables ON run_inputs (variables) WHERE variables IS NOT NULL;

-- The agents that may do a run, the preferred one first, if there are several.
CREATE TABLE run_agents (
  run           TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  n             INTEGER NOT NULL,
  agent         TEXT NOT NULL,
  pool          TEXT NOT NULL,
  -- As in `run_inputs`.
  spec          TEXT NOT NULL,
  after_failure INTEGER NOT NULL,
  is_tried      INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run, n)
) STRICT, WITHOUT ROWID;

-- Runs that start only after others have ended. The other run may have been removed.
CREATE TABLE run_after (
  run       TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  after_run TEXT NOT NULL,
  on_end    TEXT NOT NULL,
  state     TEXT NOT NULL DEFAULT 'open',
  PRIMARY KEY (run, after_run)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_after_of ON run_after (after_run);

CREATE TABLE attempts (
  run          TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  n            INTEGER NOT NULL,
  token_hash   BLOB NOT NULL,
  claimed_at   INTEGER NOT NULL,
  started_at   INTEGER,
  ended_at     INTEGER,
  -- The number of the last fact of its supervisor.
  fact         INTEGER NOT NULL DEFAULT 0,
  -- How and when the agent ended, while the supervisor is still collecting evidence.
  agent_end    TEXT,
  agent_end_at INTEGER,
  -- The usage that the gate counted, by model, in JSON.
  gate_usage   TEXT,
  -- The runner that has the attempt, as `<token>/<id of its home>`. NULL: the hub's own machine.
  host         TEXT,
  -- How long the runner may be cut off, and when it has been for longer.
  lease_ms     INTEGER,
  lost_at      INTEGER,
  PRIMARY KEY (run, n)
) STRICT, WITHOUT ROWID;

-- Removed runs whose files may be left on a runner, until it has removed them.
CREATE TABLE left_on_runners (
  -- The runner, as in `attempts`.
  host TEXT NOT NULL,
  run  TEXT NOT NULL,
  PRIMARY KEY (host, run)
) STRICT, WITHOUT ROWID;

-- A run's completion report, and the evidence collected after its last attempt.
CREATE TABLE reports (
  run    TEXT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  report TEXT,
  saw    TEXT
) STRICT;

-- Signal blocks of runs that could not be read.
CREATE TABLE unreadable_blocks (
  run     TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  -- The event that recorded it.
  seq     INTEGER NOT NULL,
  -- Its type. Empty: it names none.
  kind    TEXT NOT NULL,
  why     TEXT NOT NULL,
  -- A hash of its text.
  digest  TEXT NOT NULL,
  -- The notice to the run.
  message TEXT,
  -- Whether a person or client has looked at it.
  settled INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;

-- Changes of pools made by a command.
CREATE TABLE pools (
  name       TEXT NOT NULL PRIMARY KEY,
  -- NULL: as configured.
  slots      INTEGER CHECK (slots > 0),
  is_paused  INTEGER NOT NULL DEFAULT 0,
  changed_by TEXT NOT NULL,
  changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The event of the newest start of each owner's runs in each pool.
CREATE TABLE pool_starts (
  pool  TEXT NOT NULL,
  owner TEXT NOT NULL,
  seq   INTEGER NOT NULL,
  PRIMARY KEY (pool, owner)
) STRICT, WITHOUT ROWID;

-- Usage limits of agents, as their vendors reported them: when runs may start again, and how many starts are then
-- spread out.
CREATE TABLE usage_limits (
  agent       TEXT NOT NULL PRIMARY KEY,
  until_at    INTEGER NOT NULL,
  spread      INTEGER NOT NULL,
  reported_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Rolling windows of agents' quotas, as their vendors last stated them.
CREATE TABLE quota_windows (
  agent        TEXT NOT NULL,
  minutes      INTEGER NOT NULL,
  used_percent INTEGER NOT NULL,
  resets_at    INTEGER NOT NULL,
  reported_at  INTEGER NOT NULL,
  PRIMARY KEY (agent, minutes)
) STRICT, WITHOUT ROWID;

-- The expected memory of an agent's runs, from the peaks of its ended runs.
CREATE TABLE agent_memory (
  agent      TEXT NOT NULL PRIMARY KEY,
  peak_bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What a run and the runs below it without their own budgets may use, in milliseconds, tokens or millionths of a
-- dollar.
CREATE TABLE budgets (
  run         TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  kind        TEXT NOT NULL,
  amount      INTEGER NOT NULL CHECK (amount >= 0),
  -- For a budget of time, only the time of ended runs.
  used        INTEGER NOT NULL DEFAULT 0 CHECK (used >= 0),
  -- The part transferred to budgets of runs below.
  reserved    INTEGER NOT NULL DEFAULT 0 CHECK (reserved >= 0),
  -- The run from whose budget it was transferred, and whether it was returned.
  lender      TEXT,
  is_returned INTEGER NOT NULL DEFAULT 0,
  is_hard     INTEGER NOT NULL DEFAULT 0,
  is_warned   INTEGER NOT NULL DEFAULT 0,
  -- Unknown parts of the charged usage: requests and attempts without stated usage, and tokens without a known
  -- cost.
  unstated    INTEGER NOT NULL DEFAULT 0,
  unpriced    INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run, kind)
) STRICT, WITHOUT ROWID;

-- The workspace of an isolated run.
CREATE TABLE workspaces (
  run_id      TEXT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  kind        TEXT NOT NULL,
  -- The top of the user's work tree, the commit that the run starts from, and the branch that was checked out
  -- there.
  repository  TEXT NOT NULL,
  base        TEXT NOT NULL,
  branch      TEXT,
  -- A commit of the user's uncommitted changes that it starts with.
  changes     TEXT,
  -- The top of the workspace.
  path        TEXT NOT NULL UNIQUE,
  state       TEXT NOT NULL DEFAULT 'planned',
  -- The configured settings, and the result of the preparation, in JSON.
  spec        TEXT,
  preparation TEXT
) STRICT, WITHOUT ROWID;

-- Merges of runs' changes into the user's repositories. A row is written before the repository is changed. After a
-- crash, it has the data to complete or revert the merge.
CREATE TABLE merges (
  run_id        TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  -- From 1 within its run.
  n             INTEGER NOT NULL,
  is_done       INTEGER NOT NULL DEFAULT 0,
  mode          TEXT NOT NULL,
  repository    TEXT NOT NULL,
  -- The ref that is moved or created. NULL: only the tree and the index change.
  git_ref       TEXT,
  before_commit TEXT NOT NULL,
  after_commit  TEXT NOT NULL,
  -- The number of the run's snapshot that is merged.
  snapshot      INTEGER NOT NULL,
  -- For the reflog.
  user_name     TEXT NOT NULL,
  user_email    TEXT NOT NULL,
  reason        TEXT NOT NULL,
  merged_by     TEXT NOT NULL,
  PRIMARY KEY (run_id, n)
) STRICT, WITHOUT ROWID;
CREATE INDEX merges_under_way ON merges (is_done) WHERE is_done = 0;

-- Undos that have started and not ended. A row is written before the first file is changed. After a crash, it tells
-- which undo left files of two snapshots behind.
CREATE TABLE undos (
  run_id          TEXT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  -- The snapshot that is restored, and the one that was taken before.
  to_snapshot     INTEGER NOT NULL,
  before_snapshot INTEGER NOT NULL,
  is_forced       INTEGER NOT NULL,
  is_interrupted  INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- Runs that resolve the conflicts of another run's changes.
CREATE TABLE resolutions (
  run_id   TEXT NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  resolves TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX resolutions_of ON resolutions (resolves);

-- Due tasks for the tree of a run: a snapshot, or a comparison with its siblings.
CREATE TABLE tree_work (
  run  TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  what TEXT NOT NULL,
  -- Grows each time a task becomes due; no position in the history.
  seq  INTEGER NOT NULL DEFAULT 1,
  PRIMARY KEY (run, what)
) STRICT, WITHOUT ROWID;

-- Pairs of isolated runs whose trees were compared: the commits, the numbers of changed files, the conflicting
-- files.
CREATE TABLE conflicts (
  first         TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  second        TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  first_commit  TEXT NOT NULL,
  second_commit TEXT NOT NULL,
  first_files   INTEGER NOT NULL,
  second_files  INTEGER NOT NULL,
  files         TEXT NOT NULL,
  PRIMARY KEY (first, second)
) STRICT, WITHOUT ROWID;
CREATE INDEX conflicts_second ON conflicts (second);

-- What runs have announced that they will change or provide.
CREATE TABLE announcements (
  run   TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  kind  TEXT NOT NULL,
  what  TEXT NOT NULL,
  -- The directory that `what` is relative to, and the top of the tree that the run changes.
  place TEXT NOT NULL,
  top   TEXT NOT NULL,
  at    INTEGER NOT NULL,
  PRIMARY KEY (run, kind, what)
) STRICT, WITHOUT ROWID;

-- Pairs of runs whose announcements overlap.
CREATE TABLE overlaps (
  first  TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  second TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  -- The overlapping items, in JSON.
  items  TEXT NOT NULL,
  PRIMARY KEY (first, second)
) STRICT, WITHOUT ROWID;
CREATE INDEX overlaps_second ON overlaps (second);

CREATE TABLE requests (
  no            INTEGER PRIMARY KEY AUTOINCREMENT,
  id            TEXT NOT NULL UNIQUE,
  run           TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  kind          TEXT NOT NULL CHECK (kind IN ('question', 'approval', 'delegation')),
  question      TEXT NOT NULL,
  context       TEXT,
  options       TEXT NOT NULL DEFAULT '[]',
  fallback      TEXT,
  -- The subject of an approval or a delegation, in JSON. Its text is in `question`.
  matter        TEXT,
  blocking      INTEGER NOT NULL,
  by_block      INTEGER NOT NULL DEFAULT 0,
  patience_ms   INTEGER NOT NULL,
  -- The number of the first question of the group. That question has the clarification of the group, in JSON.
  group_no      INTEGER,
  clarification TEXT,
  -- The run's own name for the question.
  own_id        TEXT,

  status        TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'answered', 'retrieved', 'expired', 'withdrawn')),
  answer        TEXT,
  answered_by   TEXT,
  verdict       TEXT CHECK (verdict IN ('approved', 'denied')),
  changes       TEXT,
  -- The attempt that received the answer in its prompt.
  told          INTEGER,
  -- The child run of a delegation, how it ended, and whether the asking run is held until then.
  child         TEXT,
  child_name    TEXT,
  outcome       TEXT,
  held          INTEGER NOT NULL DEFAULT 0,
  -- The people to whom it was escalated, in JSON.
  escalated     TEXT,

  asked_at      INTEGER NOT NULL,
  -- When it was asked, on the steady clock.
  waits_since   INTEGER NOT NULL,
  expires_at    INTEGER NOT NULL,
  answered_at   INTEGER,
  retrieved_at  INTEGER,
  ended_at      INTEGER,

  -- The statement that changes the status checks the transition: one that fires a trigger writes a statement
  -- journal.
  CHECK ((status IN ('answered', 'retrieved')) = (answer IS NOT NULL)),
  CHECK ((answer IS NULL) = (answered_at IS NULL) AND (answer IS NULL) = (answered_by IS NULL)),
  CHECK ((status = 'retrieved') = (retrieved_at IS NOT NULL)),
  CHECK ((status IN ('expired', 'withdrawn')) = (ended_at IS NOT NULL)),
  CHECK ((kind = 'question') = (matter IS NULL)),
  CHECK (verdict IS NULL OR answer IS NOT NULL),
  CHECK (child IS NULL OR kind = 'delegation' AND verdict = 'approved'),
  CHECK ((child IS NULL) = (child_name IS NULL)),
  CHECK (held = 0 OR child IS NOT NULL),
  CHECK (outcome IS NULL OR child IS NOT NULL AND held = 0)
) STRICT;
CREATE INDEX requests_pending ON requests (run, no) WHERE status = 'pending';
CREATE INDEX requests_inbox ON requests (no, expires_at) WHERE status = 'pending';
CREATE INDEX requests_run ON requests (run, no);
CREATE INDEX requests_group ON requests (group_no) WHERE group_no IS NOT NULL;
CREATE UNIQUE INDEX requests_child ON requests (child) WHERE child IS NOT NULL;
-- A run waits only for younger runs, so waits form no cycle.
CREATE TRIGGER requests_wait_for_the_younger BEFORE UPDATE OF held ON requests
  WHEN NEW.held = 1 AND (SELECT no FROM runs WHERE id = NEW.child) <= (SELECT no FROM runs WHERE id = NEW.run)
  BEGIN SELECT RAISE (ABORT, 'a run waits for younger ones only'); END;

-- Approvals that also answer the same operation again within a tree of runs.
CREATE TABLE grants (
  no         INTEGER PRIMARY KEY AUTOINCREMENT,
  root       TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  -- A hash of what identifies the operation.
  identity   TEXT NOT NULL,
  what       TEXT NOT NULL,
  -- The number of the approval that gave the grant.
  request    INTEGER NOT NULL,
  granted_by TEXT NOT NULL,
  granted_at INTEGER NOT NULL,
  expires_at INTEGER,
  uses_max   INTEGER,
  uses       INTEGER NOT NULL DEFAULT 0,
  revoked_at INTEGER,
  revoked_by TEXT,
  CHECK (uses_max IS NULL OR uses <= uses_max),
  CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
) STRICT;
CREATE INDEX grants_of_tree ON grants (root, identity);

-- The requests that grants have answered.
CREATE TABLE grant_uses (
  grant_no INTEGER NOT NULL REFERENCES grants (no) ON DELETE CASCADE,
  request  TEXT NOT NULL REFERENCES requests (id) ON DELETE CASCADE,
  PRIMARY KEY (grant_no, request)
) STRICT, WITHOUT ROWID;
CREATE INDEX grant_uses_of ON grant_uses (request);

-- Messages to runs.
CREATE TABLE messages (
  no           INTEGER PRIMARY KEY AUTOINCREMENT,
  id           TEXT NOT NULL UNIQUE,
  run          TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  sender       TEXT NOT NULL,
  text         TEXT NOT NULL,
  sent_at      INTEGER NOT NULL,
  delivery     TEXT NOT NULL DEFAULT 'queued' CHECK (delivery IN ('queued', 'live', 'tool_result', 'prompt')),
  delivered_at INTEGER,
  -- The chat entry that it carries whole: reading one counts as reading the other.
  entry        INTEGER,
  -- The chat entry that it carries, whole or cut, and when the run has read it: when it called a tool, ended a turn
  -- or read the chat after the delivery.
  note_of      INTEGER,
  read_at      INTEGER,
  CHECK ((delivery = 'queued') = (delivered_at IS NULL))
) STRICT;
CREATE INDEX messages_queued ON messages (run, no) WHERE delivery = 'queued';
-- Finds delivered messages for an attempt in a new session.
CREATE INDEX messages_run ON messages (run, no);
CREATE INDEX messages_note ON messages (note_of) WHERE note_of IS NOT NULL;
CREATE INDEX messages_unread ON messages (run) WHERE note_of IS NOT NULL AND read_at IS NULL AND delivery <> 'queued';

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
-- Finds the newest signals of a run among thousands of other events.
CREATE INDEX events_signals ON events (run, seq) WHERE signal IS NOT NULL;

-- Events of pools. They share their sequence of positions with the events of runs.
CREATE TABLE pool_events (
  seq  INTEGER PRIMARY KEY,
  at   INTEGER NOT NULL,
  kind TEXT NOT NULL,
  pool TEXT NOT NULL,
  by   TEXT NOT NULL,
  text TEXT NOT NULL
) STRICT;

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
  -- When it expires, on the steady clock.
  due_at     INTEGER NOT NULL,
  CHECK ((status = 'completed') = (result IS NOT NULL))
) STRICT;
CREATE INDEX tasks_created ON tasks (created_at);

CREATE TABLE chats (
  id            INTEGER PRIMARY KEY AUTOINCREMENT,
  kind          TEXT NOT NULL CHECK (kind IN ('chat', 'direct', 'board')),
  title         TEXT NOT NULL,
  owner         TEXT NOT NULL,
  root          TEXT,
  private       INTEGER NOT NULL DEFAULT 0,
  -- The key of a unique chat: the direct chat of two participants, or the board of a root.
  pair          TEXT UNIQUE,
  template      TEXT,
  instructions  TEXT,
  window_chars  INTEGER NOT NULL,
  -- The size of the window in tokens, if it is not in characters.
  window_tokens INTEGER,
  turns_max     INTEGER NOT NULL,
  branch_of     INTEGER REFERENCES chats (id),
  branch_seq    INTEGER,
  -- The number of conversation entries inherited from that chat.
  branch_said   INTEGER NOT NULL DEFAULT 0,
  archived      INTEGER NOT NULL DEFAULT 0,
  -- Imported from a file; the entries are not verified.
  imported      INTEGER NOT NULL DEFAULT 0,
  -- When the newest part of an incomplete import arrived. The chat is hidden until the import is complete.
  importing     INTEGER,
  -- Whether it is shared with peers, or is a copy of a peer's chat.
  linked        TEXT,
  started_by    TEXT NOT NULL,
  started_name  TEXT NOT NULL,
  started_at    INTEGER NOT NULL,
  last_at       INTEGER NOT NULL,
  last_seq      INTEGER NOT NULL DEFAULT 0,
  -- Entries that are part of the conversation.
  said          INTEGER NOT NULL DEFAULT 0,
  -- The number of edits and pins, so that readers can find new ones.
  changes       INTEGER NOT NULL DEFAULT 0,
  -- The newest summary.
  summary_seq   INTEGER,
  CHECK ((branch_of IS NULL) = (branch_seq IS NULL)),
  CHECK ((kind = 'chat') = (pair IS NULL))
) STRICT;
CREATE INDEX chats_recent ON chats (archived, last_at, id);
CREATE INDEX chats_owner ON chats (owner, archived, last_at, id);
CREATE INDEX chats_branches ON chats (branch_of) WHERE branch_of IS NOT NULL;
CREATE INDEX chats_importing ON chats (importing) WHERE importing IS NOT NULL;

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
-- Finds the chats with unread mentions of a participant.
CREATE INDEX chat_members_named ON chat_members (who, chat) WHERE mention_seq > read_seq;

-- Entries of chats. They are never removed; an edit keeps the old text as a revision.
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
  -- The number of its newest change in the chat. 0: unchanged.
  changed   INTEGER NOT NULL DEFAULT 0,
  -- The key of an entry of a board.
  key       TEXT,
  UNIQUE (chat, seq),
  CHECK ((revision = 0) = (edited_at IS NULL))
) STRICT;
CREATE INDEX chat_messages_pinned ON chat_messages (chat, seq) WHERE pinned = 1;
CREATE INDEX chat_messages_replies ON chat_messages (chat, reply_to) WHERE reply_to IS NOT NULL;
CREATE INDEX chat_messages_changed ON chat_messages (chat, changed) WHERE changed > 0;
CREATE UNIQUE INDEX chat_messages_key ON chat_messages (chat, key) WHERE key IS NOT NULL;
-- Entries of an incomplete import may be removed.
CREATE TRIGGER chat_messages_stay BEFORE DELETE ON chat_messages WHEN (SELECT importing FROM chats WHERE id = OLD.chat) IS NULL
  BEGIN SELECT RAISE (ABORT, 'an entry of a chat stays'); END;
CREATE TRIGGER chat_messages_keep_their_place BEFORE UPDATE OF chat, seq, author, at ON chat_messages WHEN OLD.key IS NULL
  BEGIN SELECT RAISE (ABORT, 'an entry of a chat keeps its place and its author'); END;

-- The texts of edited entries before each edit.
CREATE TABLE chat_revisions (
  message  INTEGER NOT NULL REFERENCES chat_messages (id),
  revision INTEGER NOT NULL,
  author   TEXT NOT NULL,
  name     TEXT NOT NULL,
  text     TEXT NOT NULL,
  at       INTEGER NOT NULL,
  PRIMARY KEY (message, revision)
) STRICT, WITHOUT ROWID;

-- Messages that an agent must answer, each with one run.
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

-- The entries of chats as they are indexed. The tags name the chat, author and owner, so that a search within one
-- of them reads nothing else.
CREATE VIEW chat_search AS
  SELECT m.id, 'c' || m.chat || ' o' || hex(c.owner) || ' r' || coalesce(hex(c.root), '') || ' a' || hex(m.author)
    || CASE WHEN instr(m.text, '?') > 0 THEN ' q' ELSE '' END AS tags, index_text(m.text) AS text
  FROM chat_messages m JOIN chats c ON c.id = m.chat;
CREATE VIRTUAL TABLE chat_fts USING fts5 (tags, text, content = 'chat_search', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2');
INSERT INTO chat_fts (chat_fts, rank) VALUES ('rank', 'bm25(0.0, 1.0)');

-- The last indexed chat entry. The next search indexes the few newer ones.
CREATE TABLE chat_seen (
  id    INTEGER PRIMARY KEY CHECK (id = 1),
  entry INTEGER NOT NULL
) STRICT;
INSERT INTO chat_seen VALUES (1, 0);

-- The range of entry ids for each hour. Imported entries keep their times, so ids are not ordered by time.
CREATE TABLE chat_hours (
  hour  INTEGER PRIMARY KEY,
  first INTEGER NOT NULL,
  last  INTEGER NOT NULL
) STRICT;

-- Requests with their answers, and reports. They are indexed from the history by the next search or when the hub is
-- idle, so that asking and answering do not become slower.
CREATE TABLE search_docs (
  id   INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL CHECK (kind IN ('request', 'report')),
  -- The id of the request or run.
  ref  TEXT NOT NULL UNIQUE,
  run  TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  at   INTEGER NOT NULL
) STRICT;
CREATE INDEX search_docs_run ON search_docs (run);
CREATE VIRTUAL TABLE search_fts USING fts5 (tags, text, tokenize = 'unicode61 remove_diacritics 2');
INSERT INTO search_fts (search_fts, rank) VALUES ('rank', 'bm25(0.0, 1.0)');
CREATE TRIGGER search_docs_gone AFTER DELETE ON search_docs BEGIN DELETE FROM search_fts WHERE rowid = OLD.id; END;

-- The position up to which the history is indexed.
CREATE TABLE search_seen (
  id  INTEGER PRIMARY KEY CHECK (id = 1),
  seq INTEGER NOT NULL
) STRICT;
INSERT INTO search_seen VALUES (1, 0);

CREATE TABLE peers (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  name        TEXT NOT NULL UNIQUE,
  -- The token of this hub that the peer presents.
  token       INTEGER,
  url         TEXT,
  fingerprint TEXT,
  -- The file in the home with the token of the peer that this hub presents.
  secret      TEXT,
  blocked     INTEGER NOT NULL DEFAULT 0,
  added_at    INTEGER NOT NULL,
  CHECK ((url IS NULL) = (secret IS NULL))
) STRICT;

-- The chats of this hub that peers may follow.
CREATE TABLE chat_shares (
  chat      INTEGER NOT NULL REFERENCES chats (id),
  peer      INTEGER NOT NULL REFERENCES peers (id) ON DELETE CASCADE,
  read_only INTEGER NOT NULL,
  PRIMARY KEY (chat, peer)
) STRICT, WITHOUT ROWID;
CREATE INDEX chat_shares_peer ON chat_shares (peer, chat);

-- The posts of peers, by the key that the peer has chosen for each. They outlive the peer: one that is removed and
-- made known again can repeat a post.
CREATE TABLE peer_posts (
  peer    TEXT NOT NULL,
  key     TEXT NOT NULL,
  message INTEGER NOT NULL REFERENCES chat_messages (id),
  PRIMARY KEY (peer, key)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX peer_posts_message ON peer_posts (message);

-- Copies of chats of peers.
CREATE TABLE followed_chats (
  chat      INTEGER PRIMARY KEY REFERENCES chats (id),
  peer      INTEGER REFERENCES peers (id) ON DELETE SET NULL,
  peer_name TEXT NOT NULL,
  remote    INTEGER NOT NULL,
  -- Identifies the last entry, as the peer has stated.
  mark      TEXT,
  -- The last change of entries.
  changes   INTEGER NOT NULL DEFAULT 0,
  -- Why the copy is not continued.
  ended     TEXT
) STRICT;
CREATE UNIQUE INDEX followed_chats_remote ON followed_chats (peer, remote) WHERE ended IS NULL;

-- Posts to followed chats. A delivered one is removed when its entry arrives.
CREATE TABLE peer_outbox (
  no       INTEGER PRIMARY KEY AUTOINCREMENT,
  key      TEXT NOT NULL UNIQUE,
  chat     INTEGER NOT NULL REFERENCES followed_chats (chat),
  author   TEXT NOT NULL,
  name     TEXT NOT NULL,
  text     TEXT NOT NULL,
  reply_to INTEGER,
  at       INTEGER NOT NULL,
  state    TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivered', 'refused')),
  problem  TEXT,
  CHECK ((state = 'refused') = (problem IS NOT NULL))
) STRICT;
CREATE INDEX peer_outbox_next ON peer_outbox (chat, state, no);

CREATE TABLE webhooks (
  url     TEXT NOT NULL PRIMARY KEY,
  -- The number of deliveries dropped because too many were waiting.
  dropped INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The events that each webhook receives. If there are none, nothing is added to the outbox.
CREATE TABLE webhook_events (
  kind TEXT NOT NULL,
  url  TEXT NOT NULL REFERENCES webhooks (url) ON DELETE CASCADE,
  PRIMARY KEY (kind, url)
) STRICT, WITHOUT ROWID;

-- Deliveries, added by the transaction that records their event: a trigger would write a statement journal. One
-- stays here until its receiver has accepted it, or after too many failures.
CREATE TABLE outbox (
  no       INTEGER PRIMARY KEY AUTOINCREMENT,
  -- Identifies a delivery, so that the receiver recognises a retry.
  id       TEXT NOT NULL UNIQUE,
  url      TEXT NOT NULL REFERENCES webhooks (url) ON DELETE CASCADE,
  kind     TEXT NOT NULL,
  at       INTEGER NOT NULL,
  run      TEXT,
  request  TEXT,
  -- The chat entry to deliver.
  entry    INTEGER,
  by       TEXT NOT NULL,
  text     TEXT NOT NULL,
  state    TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'parked')),
  attempts INTEGER NOT NULL DEFAULT 0,
  next_at  INTEGER NOT NULL DEFAULT 0,
  problem  TEXT
) STRICT;
CREATE INDEX outbox_next ON outbox (url, state, no);

-- Tokens for callers over HTTP.
CREATE TABLE tokens (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  name       TEXT NOT NULL,
  -- Stored until the token is revoked.
  hash       TEXT UNIQUE,
  role       TEXT NOT NULL,
  client     TEXT,
  created_at INTEGER NOT NULL,
  -- Exact to the hour.
  used_at    INTEGER,
  revoked_at INTEGER,
  -- The program, while it runs, from which alone the token of a browser counts. NULL: no process could be seen at
  -- the sign-in.
  program    TEXT,
  -- The SHA-256 of the code with which the page continues after a reload.
  resume     TEXT,
  -- When the page was left.
  left_at    INTEGER,
  CHECK ((hash IS NULL) = (revoked_at IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX tokens_name ON tokens (name) WHERE revoked_at IS NULL;
CREATE UNIQUE INDEX tokens_resume ON tokens (resume) WHERE resume IS NOT NULL;

-- Agent configuration in directories that the person has trusted, as a hash.
CREATE TABLE trusted (
  cwd  TEXT NOT NULL,
  hash TEXT NOT NULL,
  by   TEXT NOT NULL,
  at   INTEGER NOT NULL,
  PRIMARY KEY (cwd, hash)
) STRICT, WITHOUT ROWID;

-- The policies of the configuration file that are in effect.
CREATE TABLE policies_in_effect (
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  -- The policies as JSON, and a hash of it.
  source  TEXT NOT NULL,
  digest  TEXT NOT NULL,
  -- Whether a run is live, or was live when the policies changed or could not be read: a change needs the person's
  -- trust.
  guarded INTEGER NOT NULL
) STRICT;

-- The steady clock: its time at a reading of the machine's clocks, the off-time before the last boot that is not
-- counted yet, and the last jump of the wall clock.
CREATE TABLE clock (
  one           INTEGER PRIMARY KEY CHECK (one = 1),
  now           INTEGER NOT NULL,
  wall          INTEGER NOT NULL,
  since_boot    INTEGER NOT NULL,
  boot          TEXT NOT NULL,
  away_expected INTEGER,
  away_calm     INTEGER,
  jump_by       INTEGER,
  jump_noticed  INTEGER,
  ahead         INTEGER NOT NULL
) STRICT;

-- The eras of a store whose database was set back, on a server. Era 0 has no row.
CREATE TABLE eras (
  era      INTEGER PRIMARY KEY,
  began_at INTEGER NOT NULL,
  -- The numbers that were left out, by table, as JSON: the last one before, and the one above which numbers
  -- continue.
  gaps     TEXT NOT NULL
) STRICT;
