-- The schema of version 14. The same tables as those of the migrations for SQLite. Texts compare by their bytes.

-- The hub that uses the store: its epoch, and the number of the epoch's newest transaction.
CREATE TABLE hub (
  one         BIGINT PRIMARY KEY CHECK (one = 1),
  version     BIGINT NOT NULL,
  epoch       BIGINT NOT NULL,
  transaction BIGINT NOT NULL
) WITH (fillfactor = 50);

-- The last number of each table. A rollback also returns the number, so that numbers are in the order of commits and have no gaps.
CREATE TABLE sqlite_sequence (
  name TEXT COLLATE "C" PRIMARY KEY,
  seq  BIGINT NOT NULL
) WITH (fillfactor = 50);
CREATE FUNCTION next_number(of TEXT) RETURNS BIGINT LANGUAGE sql VOLATILE AS $$
  INSERT INTO sqlite_sequence AS s VALUES (of, 1) ON CONFLICT (name) DO UPDATE SET seq = s.seq + 1 RETURNING s.seq
$$;

-- The functions of the store's SQL that no standard has under one name for all engines. SQLite's are in sqlite/functions.rs.
CREATE FUNCTION larger(a BIGINT, b BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT greatest(a, b) $$;
CREATE FUNCTION smaller(a BIGINT, b BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT least(a, b) $$;
CREATE FUNCTION random_id() RETURNS TEXT LANGUAGE sql VOLATILE AS $$
  SELECT left(encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'hex'), 32)
$$;
CREATE FUNCTION is_valid_json(value TEXT) RETURNS BOOLEAN LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF value IS NULL THEN RETURN NULL; END IF;
  PERFORM value::json;
  RETURN true;
EXCEPTION WHEN data_exception THEN
  RETURN false;
END $$;
-- A path has the form `$.a.b`.
CREATE FUNCTION keys_of_path(path TEXT) RETURNS TEXT[] LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT string_to_array(substr(path, 3), '.') $$;
CREATE FUNCTION json_text_at(value TEXT, path TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT value::json #>> keys_of_path(path) $$;
CREATE FUNCTION json_part_at(value TEXT, path TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT (value::json #> keys_of_path(path))::text $$;
CREATE FUNCTION json_with_part(value TEXT, path TEXT, part TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(jsonb_set(value::jsonb, keys_of_path(path), coalesce(part::jsonb, 'null')), value::jsonb)::text
$$;
CREATE FUNCTION json_with_text(value TEXT, path TEXT, content TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
  SELECT json_with_part(value, path, to_jsonb(content)::text)
$$;

CREATE TABLE runs (
  no               BIGINT PRIMARY KEY DEFAULT next_number('runs'),
  id               TEXT COLLATE "C" NOT NULL UNIQUE,
  name             TEXT COLLATE "C" NOT NULL UNIQUE,
  agent            TEXT COLLATE "C" NOT NULL,
  task             TEXT COLLATE "C" NOT NULL,
  cwd              TEXT COLLATE "C" NOT NULL,
  patience_ms      BIGINT NOT NULL,
  prompt_via       TEXT COLLATE "C" NOT NULL,
  owner            TEXT COLLATE "C" NOT NULL,
  parent           TEXT COLLATE "C",
  root             TEXT COLLATE "C" NOT NULL,
  retry_of         TEXT COLLATE "C",
  state            TEXT COLLATE "C" NOT NULL CHECK (state IN ('queued', 'starting', 'running', 'stopping', 'stopped', 'finished')),
  stop_reason      TEXT COLLATE "C",
  until_at         BIGINT,
  outcome          TEXT COLLATE "C",
  failure          TEXT COLLATE "C",
  exit_code        BIGINT,
  exit_signal      BIGINT,
  detail           TEXT COLLATE "C",
  attempt          BIGINT NOT NULL DEFAULT 0,
  created_at       BIGINT NOT NULL,
  started_at       BIGINT,
  ended_at         BIGINT,
  updated_at       BIGINT NOT NULL,
  summary          TEXT COLLATE "C",
  claim            TEXT COLLATE "C" CHECK (claim IN ('success', 'completed', 'partial_success', 'error')),
  result           TEXT COLLATE "C",
  percent          BIGINT,
  progress         TEXT COLLATE "C",
  annotation       TEXT COLLATE "C",
  -- The number of ignored signals, and why the last one was ignored.
  ignored          BIGINT NOT NULL DEFAULT 0,
  ignored_why      TEXT COLLATE "C",
  checkpoint       TEXT COLLATE "C",
  resolution       TEXT COLLATE "C",
  next_step        TEXT COLLATE "C",
  choice           TEXT COLLATE "C",
  eta              TEXT COLLATE "C",
  containment      TEXT COLLATE "C",
  swept            BIGINT,
  output_left_open BIGINT NOT NULL DEFAULT 0,
  active_ms        BIGINT NOT NULL DEFAULT 0,
  session          TEXT COLLATE "C",
  input_tokens     BIGINT,
  cached_tokens    BIGINT,
  output_tokens    BIGINT,
  cost_micros      BIGINT,
  pending          BIGINT NOT NULL DEFAULT 0,
  blocking_pending BIGINT NOT NULL DEFAULT 0,
  unread           BIGINT NOT NULL DEFAULT 0,
  -- The number of delegations that hold the run, and its rank in the queue.
  holding          BIGINT NOT NULL DEFAULT 0,
  rank             BIGINT NOT NULL DEFAULT 1,
  last_seq         BIGINT NOT NULL DEFAULT 0,
  end_seq          BIGINT, stalled_at BIGINT, stall_seq BIGINT, note TEXT COLLATE "C", notified_seq BIGINT NOT NULL DEFAULT 0, shortfall TEXT COLLATE "C" CHECK (shortfall IN ('not_accepted', 'not_checked', 'contradicted')), active_since BIGINT, estimate_ms BIGINT, overdue_at BIGINT, overdue_seq BIGINT, settled_at BIGINT, retrying TEXT COLLATE "C", retrying_seq BIGINT, subagents TEXT COLLATE "C", result_bytes BIGINT, result_gap TEXT COLLATE "C", reconstructed TEXT COLLATE "C", fence TEXT COLLATE "C", snapshot_problem TEXT COLLATE "C", snapshot_seq BIGINT, conflict_seq BIGINT, port_base BIGINT, port_count BIGINT, resources TEXT COLLATE "C", pool TEXT COLLATE "C" NOT NULL DEFAULT 'default', after_open BIGINT NOT NULL DEFAULT 0, after_failed TEXT COLLATE "C" NOT NULL DEFAULT 'cancel', agent_why TEXT COLLATE "C", repository_policies TEXT COLLATE "C", overlap_seq BIGINT, budget_seq BIGINT, usage_totals TEXT COLLATE "C", unpriced_tokens BIGINT NOT NULL DEFAULT 0, is_priced BIGINT NOT NULL DEFAULT 0,
  CHECK ((state IN ('stopping', 'stopped')) = (stop_reason IS NOT NULL)),
  CHECK ((state = 'stopped') = (until_at IS NOT NULL)),
  CHECK ((state = 'finished') = (outcome IS NOT NULL)),
  CHECK ((state = 'finished') = (ended_at IS NOT NULL)),
  CHECK (pending >= 0 AND blocking_pending >= 0 AND unread >= 0 AND holding >= 0)
);
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
CREATE TABLE run_inputs (
  run    TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  prompt TEXT COLLATE "C" NOT NULL,
  spec   TEXT COLLATE "C" NOT NULL,
  -- The success criteria as text, and the acceptance command as a list.
  criteria TEXT COLLATE "C",
  accept   TEXT COLLATE "C"
, variables TEXT COLLATE "C");
CREATE TABLE reports (
  run    TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  report TEXT COLLATE "C",
  saw    TEXT COLLATE "C"
);
CREATE TABLE attempts (
  run        TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  n          BIGINT NOT NULL,
  token_hash BYTEA NOT NULL,
  claimed_at BIGINT NOT NULL,
  started_at BIGINT,
  ended_at   BIGINT,
  fact       BIGINT NOT NULL DEFAULT 0,
  -- How the agent ended, while the supervisor is still collecting evidence.
  agent_end  TEXT COLLATE "C", agent_end_at BIGINT, gate_usage TEXT COLLATE "C",
  PRIMARY KEY (run, n)
);
CREATE TABLE requests (
  no           BIGINT PRIMARY KEY DEFAULT next_number('requests'),
  id           TEXT COLLATE "C" NOT NULL UNIQUE,
  run          TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  kind         TEXT COLLATE "C" NOT NULL CHECK (kind IN ('question', 'approval', 'delegation')),
  question     TEXT COLLATE "C" NOT NULL,
  context      TEXT COLLATE "C",
  options      TEXT COLLATE "C" NOT NULL DEFAULT '[]',
  fallback     TEXT COLLATE "C",
  blocking     BIGINT NOT NULL,
  by_block     BIGINT NOT NULL DEFAULT 0,
  patience_ms  BIGINT NOT NULL,
  status       TEXT COLLATE "C" NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'answered', 'retrieved', 'expired', 'withdrawn')),
  -- The subject of an approval or a delegation, in JSON. Its text is in `question`.
  matter       TEXT COLLATE "C",
  -- The number of the first question of the group.
  group_no     BIGINT,
  answer       TEXT COLLATE "C",
  verdict      TEXT COLLATE "C" CHECK (verdict IN ('approved', 'denied')),
  changes      TEXT COLLATE "C",
  -- The attempt that received the answer in its prompt.
  told         BIGINT,
  -- The child run of a delegation, how it ended, and whether the asking run is held until then.
  child        TEXT COLLATE "C",
  child_name   TEXT COLLATE "C",
  outcome      TEXT COLLATE "C",
  held         BIGINT NOT NULL DEFAULT 0,
  answered_by  TEXT COLLATE "C",
  asked_at     BIGINT NOT NULL,
  expires_at   BIGINT NOT NULL,
  answered_at  BIGINT,
  retrieved_at BIGINT,
  ended_at     BIGINT, own_id TEXT COLLATE "C", clarification TEXT COLLATE "C", waits_since BIGINT, escalated TEXT COLLATE "C",
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
);
CREATE INDEX requests_pending ON requests (run, no) WHERE status = 'pending';
CREATE INDEX requests_run ON requests (run, no);
CREATE UNIQUE INDEX requests_child ON requests (child) WHERE child IS NOT NULL;
CREATE INDEX requests_group ON requests (group_no) WHERE group_no IS NOT NULL;
CREATE TABLE events (
  seq     BIGINT PRIMARY KEY DEFAULT next_number('events'),
  at      BIGINT NOT NULL,
  kind    TEXT COLLATE "C" NOT NULL,
  run     TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  request TEXT COLLATE "C",
  by      TEXT COLLATE "C" NOT NULL,
  text    TEXT COLLATE "C" NOT NULL,
  -- The signal that caused the event: its type, and its source (a tool or a block).
  signal  TEXT COLLATE "C",
  source  TEXT COLLATE "C"
);
CREATE INDEX events_run ON events (run, seq);
CREATE TABLE messages (
  no           BIGINT PRIMARY KEY DEFAULT next_number('messages'),
  id           TEXT COLLATE "C" NOT NULL UNIQUE,
  run          TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  sender       TEXT COLLATE "C" NOT NULL,
  text         TEXT COLLATE "C" NOT NULL,
  sent_at      BIGINT NOT NULL,
  delivery     TEXT COLLATE "C" NOT NULL DEFAULT 'queued' CHECK (delivery IN ('queued', 'live', 'tool_result', 'prompt')),
  delivered_at BIGINT, entry BIGINT, note_of BIGINT, read_at BIGINT,
  CHECK ((delivery = 'queued') = (delivered_at IS NULL))
);
CREATE INDEX messages_queued ON messages (run, no) WHERE delivery = 'queued';
CREATE TABLE keys (
  no        BIGINT PRIMARY KEY DEFAULT next_number('keys'),
  key       TEXT COLLATE "C" NOT NULL,
  principal TEXT COLLATE "C" NOT NULL,
  body_hash BYTEA NOT NULL,
  reply     TEXT COLLATE "C" NOT NULL,
  at        BIGINT NOT NULL,
  UNIQUE (key, principal)
);
CREATE TABLE tasks (
  id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  principal  TEXT COLLATE "C" NOT NULL,
  wait       TEXT COLLATE "C" NOT NULL,
  status     TEXT COLLATE "C" NOT NULL CHECK (status IN ('working', 'completed', 'cancelled')),
  result     TEXT COLLATE "C",
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  ttl_ms     BIGINT NOT NULL, due_at BIGINT,
  CHECK ((status = 'completed') = (result IS NOT NULL))
);
CREATE INDEX tasks_created ON tasks (created_at);
CREATE TABLE chats (
  id           BIGINT PRIMARY KEY DEFAULT next_number('chats'),
  kind         TEXT COLLATE "C" NOT NULL CHECK (kind IN ('chat', 'direct', 'board')),
  title        TEXT COLLATE "C" NOT NULL,
  owner        TEXT COLLATE "C" NOT NULL,
  root         TEXT COLLATE "C",
  private      BIGINT NOT NULL DEFAULT 0,
  -- The key of a unique chat: the direct chat of two participants, or the board of a root.
  pair         TEXT COLLATE "C" UNIQUE,
  template     TEXT COLLATE "C",
  instructions TEXT COLLATE "C",
  window_chars BIGINT NOT NULL,
  turns_max    BIGINT NOT NULL,
  branch_of    BIGINT REFERENCES chats (id),
  branch_seq   BIGINT,
  -- The number of conversation entries inherited from that chat.
  branch_said  BIGINT NOT NULL DEFAULT 0,
  archived     BIGINT NOT NULL DEFAULT 0,
  -- Imported from a file; the entries are not verified.
  imported     BIGINT NOT NULL DEFAULT 0,
  started_by   TEXT COLLATE "C" NOT NULL,
  started_name TEXT COLLATE "C" NOT NULL,
  started_at   BIGINT NOT NULL,
  last_at      BIGINT NOT NULL,
  last_seq     BIGINT NOT NULL DEFAULT 0,
  -- Entries that are part of the conversation.
  said         BIGINT NOT NULL DEFAULT 0,
  -- The newest summary.
  summary_seq  BIGINT, window_tokens BIGINT, changes BIGINT NOT NULL DEFAULT 0, importing BIGINT,
  CHECK ((branch_of IS NULL) = (branch_seq IS NULL)),
  CHECK ((kind = 'chat') = (pair IS NULL))
);
CREATE INDEX chats_recent ON chats (archived, last_at, id);
CREATE INDEX chats_owner ON chats (owner, archived, last_at, id);
CREATE INDEX chats_branches ON chats (branch_of) WHERE branch_of IS NOT NULL;
CREATE TABLE chat_members (
  chat        BIGINT NOT NULL REFERENCES chats (id),
  who         TEXT COLLATE "C" NOT NULL,
  name        TEXT COLLATE "C" NOT NULL,
  -- NULL: the participant has only read.
  joined_at   BIGINT,
  -- The last entry that the participant has read.
  read_seq    BIGINT NOT NULL DEFAULT 0,
  -- The newest entry that mentions this participant.
  mention_seq BIGINT NOT NULL DEFAULT 0,
  said        BIGINT NOT NULL DEFAULT 0,
  seen_at     BIGINT,
  PRIMARY KEY (chat, who)
);
CREATE INDEX chat_members_who ON chat_members (who, chat);
CREATE TABLE chat_messages (
  id        BIGINT PRIMARY KEY DEFAULT next_number('chat_messages'),
  chat      BIGINT NOT NULL REFERENCES chats (id),
  seq       BIGINT NOT NULL,
  kind      TEXT COLLATE "C" NOT NULL,
  author    TEXT COLLATE "C" NOT NULL,
  name      TEXT COLLATE "C" NOT NULL,
  label     TEXT COLLATE "C",
  text      TEXT COLLATE "C" NOT NULL,
  at        BIGINT NOT NULL,
  reply_to  BIGINT,
  -- The length of the chain of agents answering each other that leads to this entry.
  hops      BIGINT NOT NULL DEFAULT 0,
  pinned    BIGINT NOT NULL DEFAULT 0,
  revision  BIGINT NOT NULL DEFAULT 0,
  edited_at BIGINT,
  key       TEXT COLLATE "C", changed BIGINT NOT NULL DEFAULT 0,
  UNIQUE (chat, seq),
  CHECK ((revision = 0) = (edited_at IS NULL))
);
CREATE INDEX chat_messages_pinned ON chat_messages (chat, seq) WHERE pinned = 1;
CREATE INDEX chat_messages_replies ON chat_messages (chat, reply_to) WHERE reply_to IS NOT NULL;
CREATE UNIQUE INDEX chat_messages_key ON chat_messages (chat, key) WHERE key IS NOT NULL;
CREATE TABLE chat_revisions (
  message  BIGINT NOT NULL REFERENCES chat_messages (id),
  revision BIGINT NOT NULL,
  author   TEXT COLLATE "C" NOT NULL,
  name     TEXT COLLATE "C" NOT NULL,
  text     TEXT COLLATE "C" NOT NULL,
  at       BIGINT NOT NULL,
  PRIMARY KEY (message, revision)
);
CREATE TABLE chat_turns (
  id      BIGINT PRIMARY KEY DEFAULT next_number('chat_turns'),
  chat    BIGINT NOT NULL REFERENCES chats (id),
  agent   TEXT COLLATE "C" NOT NULL,
  purpose TEXT COLLATE "C" NOT NULL DEFAULT 'answer' CHECK (purpose IN ('answer', 'summary')),
  message BIGINT NOT NULL,
  hops    BIGINT NOT NULL,
  cwd     TEXT COLLATE "C" NOT NULL,
  env     TEXT COLLATE "C" NOT NULL,
  state   TEXT COLLATE "C" NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'answered', 'failed', 'cancelled')),
  run     TEXT COLLATE "C",
  entry   BIGINT,
  at      BIGINT NOT NULL,
  CHECK ((state IN ('answered', 'failed')) = (entry IS NOT NULL)),
  CHECK (state <> 'running' OR run IS NOT NULL)
);
CREATE UNIQUE INDEX chat_turns_one ON chat_turns (chat, agent) WHERE state = 'running';
CREATE INDEX chat_turns_open ON chat_turns (chat, agent, id) WHERE state IN ('queued', 'running');
CREATE INDEX chat_turns_run ON chat_turns (run) WHERE run IS NOT NULL;
CREATE INDEX chat_turns_message ON chat_turns (chat, message);
CREATE INDEX chat_members_named ON chat_members (who, chat) WHERE mention_seq > read_seq;
CREATE TABLE chat_hours (
  hour  BIGINT PRIMARY KEY,
  first BIGINT NOT NULL,
  last  BIGINT NOT NULL
);
CREATE TABLE search_docs (
  id   BIGINT PRIMARY KEY DEFAULT next_number('search_docs'),
  kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('request', 'report')),
  -- The id of the request or run.
  ref  TEXT COLLATE "C" NOT NULL UNIQUE,
  run  TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  at   BIGINT NOT NULL
);
CREATE INDEX search_docs_run ON search_docs (run);
CREATE TABLE search_seen (
  id  BIGINT PRIMARY KEY CHECK (id = 1),
  seq BIGINT NOT NULL
);
CREATE TABLE webhooks (
  url     TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  -- The number of deliveries dropped because too many were waiting.
  dropped BIGINT NOT NULL DEFAULT 0
);
CREATE TABLE webhook_events (
  kind TEXT COLLATE "C" NOT NULL,
  url  TEXT COLLATE "C" NOT NULL REFERENCES webhooks (url) ON DELETE CASCADE,
  PRIMARY KEY (kind, url)
);
CREATE TABLE outbox (
  no       BIGINT PRIMARY KEY DEFAULT next_number('outbox'),
  -- Identifies a delivery, so that the receiver recognises a retry.
  id       TEXT COLLATE "C" NOT NULL UNIQUE,
  url      TEXT COLLATE "C" NOT NULL REFERENCES webhooks (url) ON DELETE CASCADE,
  kind     TEXT COLLATE "C" NOT NULL,
  at       BIGINT NOT NULL,
  run      TEXT COLLATE "C",
  request  TEXT COLLATE "C",
  -- The chat entry to deliver.
  entry    BIGINT,
  by       TEXT COLLATE "C" NOT NULL,
  text     TEXT COLLATE "C" NOT NULL,
  state    TEXT COLLATE "C" NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'parked')),
  attempts BIGINT NOT NULL DEFAULT 0,
  next_at  BIGINT NOT NULL DEFAULT 0,
  problem  TEXT COLLATE "C"
);
CREATE INDEX outbox_next ON outbox (url, state, no);
CREATE TABLE trusted (
  cwd  TEXT COLLATE "C" NOT NULL,
  hash TEXT COLLATE "C" NOT NULL,
  by   TEXT COLLATE "C" NOT NULL,
  at   BIGINT NOT NULL,
  PRIMARY KEY (cwd, hash)
);
CREATE INDEX chat_messages_changed ON chat_messages (chat, changed) WHERE changed > 0;
CREATE TABLE chat_seen (
  id    BIGINT PRIMARY KEY CHECK (id = 1),
  entry BIGINT NOT NULL
);
CREATE INDEX chats_importing ON chats (importing) WHERE importing IS NOT NULL;
CREATE INDEX requests_inbox ON requests (no, expires_at) WHERE status = 'pending';
CREATE INDEX runs_unnotified ON runs (owner, end_seq) WHERE end_seq > notified_seq;
CREATE INDEX messages_run ON messages (run, no);
CREATE INDEX runs_estimates ON runs ((active_since + estimate_ms - active_ms))
  WHERE state = 'running' AND active_since IS NOT NULL AND estimate_ms IS NOT NULL AND overdue_seq IS NULL;
CREATE TABLE clock (
  one           BIGINT PRIMARY KEY CHECK (one = 1),
  now           BIGINT NOT NULL,
  wall          BIGINT NOT NULL,
  since_boot    BIGINT NOT NULL,
  boot          TEXT COLLATE "C" NOT NULL,
  away_expected BIGINT,
  away_calm     BIGINT,
  jump_by       BIGINT,
  jump_noticed  BIGINT,
  ahead         BIGINT NOT NULL
);
CREATE INDEX runs_settled ON runs (settled_at) WHERE state = 'finished';
CREATE TABLE workspaces (
  run_id     TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  kind       TEXT COLLATE "C" NOT NULL,
  -- The top of the user's work tree, the commit that the run starts from, and the branch that was checked out there.
  repository TEXT COLLATE "C" NOT NULL,
  base       TEXT COLLATE "C" NOT NULL,
  branch     TEXT COLLATE "C",
  -- A commit of the user's uncommitted changes that it starts with.
  changes    TEXT COLLATE "C",
  -- The top of the workspace.
  path       TEXT COLLATE "C" NOT NULL UNIQUE,
  state      TEXT COLLATE "C" NOT NULL DEFAULT 'planned'
, spec TEXT COLLATE "C", preparation TEXT COLLATE "C");
CREATE TABLE merges (
  run_id        TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  -- From 1 within its run.
  n             BIGINT NOT NULL,
  is_done       BIGINT NOT NULL DEFAULT 0,
  mode          TEXT COLLATE "C" NOT NULL,
  repository    TEXT COLLATE "C" NOT NULL,
  -- The ref that is moved or created. NULL: only the tree and the index change.
  git_ref       TEXT COLLATE "C",
  before_commit TEXT COLLATE "C" NOT NULL,
  after_commit  TEXT COLLATE "C" NOT NULL,
  -- The number of the run's snapshot that is merged.
  snapshot      BIGINT NOT NULL,
  -- For the reflog.
  user_name     TEXT COLLATE "C" NOT NULL,
  user_email    TEXT COLLATE "C" NOT NULL,
  reason        TEXT COLLATE "C" NOT NULL,
  merged_by     TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (run_id, n)
);
CREATE INDEX merges_under_way ON merges (is_done) WHERE is_done = 0;
CREATE TABLE resolutions (
  run_id   TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  resolves TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE
);
CREATE INDEX resolutions_of ON resolutions (resolves);
CREATE TABLE tree_work (
  run  TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  what TEXT COLLATE "C" NOT NULL,
  seq  BIGINT NOT NULL DEFAULT 1,
  PRIMARY KEY (run, what)
);
CREATE TABLE conflicts (
  first         TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  second        TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  first_commit  TEXT COLLATE "C" NOT NULL,
  second_commit TEXT COLLATE "C" NOT NULL,
  first_files   BIGINT NOT NULL,
  second_files  BIGINT NOT NULL,
  files         TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (first, second)
);
CREATE INDEX conflicts_second ON conflicts (second);
CREATE INDEX runs_queue ON runs (pool, after_open, rank, owner, agent, no) WHERE state = 'queued';
CREATE TABLE pools (
  name       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  slots      BIGINT CHECK (slots > 0),
  is_paused  BIGINT NOT NULL DEFAULT 0,
  changed_by TEXT COLLATE "C" NOT NULL,
  changed_at BIGINT NOT NULL
);
CREATE TABLE pool_starts (
  pool  TEXT COLLATE "C" NOT NULL,
  owner TEXT COLLATE "C" NOT NULL,
  seq   BIGINT NOT NULL,
  PRIMARY KEY (pool, owner)
);
CREATE TABLE run_after (
  run       TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  after_run TEXT COLLATE "C" NOT NULL,
  on_end    TEXT COLLATE "C" NOT NULL,
  state     TEXT COLLATE "C" NOT NULL DEFAULT 'open',
  PRIMARY KEY (run, after_run)
);
CREATE INDEX run_after_of ON run_after (after_run);
CREATE TABLE grants (
  no         BIGINT PRIMARY KEY DEFAULT next_number('grants'),
  root       TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  -- A hash of what identifies the operation.
  identity   TEXT COLLATE "C" NOT NULL,
  what       TEXT COLLATE "C" NOT NULL,
  -- The number of the approval that gave the grant.
  request    BIGINT NOT NULL,
  granted_by TEXT COLLATE "C" NOT NULL,
  granted_at BIGINT NOT NULL,
  expires_at BIGINT,
  uses_max   BIGINT,
  uses       BIGINT NOT NULL DEFAULT 0,
  revoked_at BIGINT,
  revoked_by TEXT COLLATE "C",
  CHECK (uses_max IS NULL OR uses <= uses_max),
  CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
);
CREATE INDEX grants_of_tree ON grants (root, identity);
CREATE TABLE grant_uses (
  grant_no BIGINT NOT NULL REFERENCES grants (no) ON DELETE CASCADE,
  request  TEXT COLLATE "C" NOT NULL REFERENCES requests (id) ON DELETE CASCADE,
  PRIMARY KEY (grant_no, request)
);
CREATE INDEX grant_uses_of ON grant_uses (request);
CREATE TABLE run_agents (
  run           TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  n             BIGINT NOT NULL,
  agent         TEXT COLLATE "C" NOT NULL,
  pool          TEXT COLLATE "C" NOT NULL,
  spec          TEXT COLLATE "C" NOT NULL,
  after_failure BIGINT NOT NULL,
  is_tried      BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (run, n)
);
CREATE TABLE usage_limits (
  agent       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  until_at    BIGINT NOT NULL,
  spread      BIGINT NOT NULL,
  reported_at BIGINT NOT NULL
);
CREATE INDEX messages_note ON messages (note_of) WHERE note_of IS NOT NULL;
CREATE INDEX messages_unread ON messages (run) WHERE note_of IS NOT NULL AND read_at IS NULL AND delivery <> 'queued';
CREATE TABLE announcements (
  run     TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  kind    TEXT COLLATE "C" NOT NULL,
  what    TEXT COLLATE "C" NOT NULL,
  -- The directory that `what` is relative to, and the top of the tree that the run changes.
  place   TEXT COLLATE "C" NOT NULL,
  top     TEXT COLLATE "C" NOT NULL,
  at      BIGINT NOT NULL,
  PRIMARY KEY (run, kind, what)
);
CREATE TABLE "overlaps" (
  first  TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  second TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  items  TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (first, second)
);
CREATE INDEX overlaps_second ON "overlaps" (second);
CREATE TABLE agent_memory (
  agent      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  peak_bytes BIGINT NOT NULL
);
CREATE TABLE budgets (
  run         TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  kind        TEXT COLLATE "C" NOT NULL,
  amount      BIGINT NOT NULL CHECK (amount >= 0),
  used        BIGINT NOT NULL DEFAULT 0 CHECK (used >= 0),
  -- The part transferred to budgets of runs below.
  reserved    BIGINT NOT NULL DEFAULT 0 CHECK (reserved >= 0),
  -- The run from whose budget it was transferred, and whether it was returned.
  lender      TEXT COLLATE "C",
  is_returned BIGINT NOT NULL DEFAULT 0,
  is_hard     BIGINT NOT NULL DEFAULT 0,
  is_warned   BIGINT NOT NULL DEFAULT 0, unstated BIGINT NOT NULL DEFAULT 0, unpriced BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (run, kind)
);
CREATE TABLE tokens (
  id         BIGINT PRIMARY KEY DEFAULT next_number('tokens'),
  name       TEXT COLLATE "C" NOT NULL,
  hash       TEXT COLLATE "C" UNIQUE,
  role       TEXT COLLATE "C" NOT NULL,
  client     TEXT COLLATE "C",
  created_at BIGINT NOT NULL,
  -- Exact to the hour.
  used_at    BIGINT,
  revoked_at BIGINT,
  CHECK ((hash IS NULL) = (revoked_at IS NOT NULL))
);
CREATE UNIQUE INDEX tokens_name ON tokens (name) WHERE revoked_at IS NULL;
CREATE TABLE pool_events (
  seq  BIGINT PRIMARY KEY,
  at   BIGINT NOT NULL,
  kind TEXT COLLATE "C" NOT NULL,
  pool TEXT COLLATE "C" NOT NULL,
  by   TEXT COLLATE "C" NOT NULL,
  text TEXT COLLATE "C" NOT NULL
);
CREATE INDEX runs_held ON runs (end_seq) WHERE state = 'queued' AND end_seq IS NOT NULL;
CREATE TABLE quota_windows (
  agent        TEXT COLLATE "C" NOT NULL,
  minutes      BIGINT NOT NULL,
  used_percent BIGINT NOT NULL,
  resets_at    BIGINT NOT NULL,
  reported_at  BIGINT NOT NULL,
  PRIMARY KEY (agent, minutes)
);
CREATE TABLE undos (
  run_id          TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  -- The snapshot that is restored, and the one that was taken before.
  to_snapshot     BIGINT NOT NULL,
  before_snapshot BIGINT NOT NULL,
  is_forced       BIGINT NOT NULL,
  is_interrupted  BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX run_inputs_variables ON run_inputs (variables) WHERE variables IS NOT NULL;

-- The text of requests and reports, and tags that a search filters by.
CREATE TABLE search_fts (
  rowid BIGINT PRIMARY KEY REFERENCES search_docs (id) ON DELETE CASCADE,
  tags  TEXT COLLATE "C" NOT NULL,
  text  TEXT COLLATE "C" NOT NULL
);
INSERT INTO search_seen VALUES (1, 0);
INSERT INTO chat_seen VALUES (1, 0);

CREATE FUNCTION refuse() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = TG_ARGV[0]; END $$;
CREATE TRIGGER runs_finished_never_change BEFORE UPDATE OF state, outcome ON runs FOR EACH ROW WHEN (OLD.state = 'finished')
  EXECUTE FUNCTION refuse('a finished run never changes');
CREATE TRIGGER chat_messages_keep_their_place BEFORE UPDATE OF chat, seq, author, at ON chat_messages FOR EACH ROW WHEN (OLD.key IS NULL)
  EXECUTE FUNCTION refuse('an entry of a chat keeps its place and its author');
CREATE FUNCTION refuse_older_child() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT no FROM runs WHERE id = NEW.child) <= (SELECT no FROM runs WHERE id = NEW.run) THEN
    RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = 'a run waits for younger ones only';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER requests_wait_for_the_younger BEFORE UPDATE OF held ON requests FOR EACH ROW WHEN (NEW.held = 1) EXECUTE FUNCTION refuse_older_child();
CREATE FUNCTION refuse_removal() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT importing FROM chats WHERE id = OLD.chat) IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = 'an entry of a chat stays';
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER chat_messages_stay BEFORE DELETE ON chat_messages FOR EACH ROW EXECUTE FUNCTION refuse_removal();
