-- The schema of a new store, with the tables and columns of sqlite/schema.sql, in its order. That file has the comments
-- on them; this one says what differs. Texts compare by their bytes.

CREATE FUNCTION random_id() RETURNS TEXT LANGUAGE sql VOLATILE AS $$
  SELECT left(encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'hex'), 32)
$$;

-- The hub that uses the store.
CREATE TABLE hub (
  one            BIGINT PRIMARY KEY CHECK (one = 1),
  -- The version of the schema.
  schema_version BIGINT NOT NULL,
  -- The number of times that a hub began to lead, and the number of this epoch's newest transaction.
  epoch          BIGINT NOT NULL,
  transaction    BIGINT NOT NULL,
  -- The name and the address of the hub that leads, as JSON. NULL: that hub does not share the store.
  leader         TEXT COLLATE "C",
  -- The secret of the store, by which hubs and runners recognise it.
  store          TEXT COLLATE "C" NOT NULL DEFAULT random_id()
) WITH (fillfactor = 50);

-- The newest epochs: a random id of each, and its last transaction once the next one has begun.
CREATE TABLE leads (
  epoch BIGINT PRIMARY KEY,
  id    TEXT COLLATE "C" NOT NULL,
  last  BIGINT
);

-- The hubs that stand by.
CREATE TABLE hubs (
  -- The process that serves the session of the hub. An entry without such a session is void.
  backend    BIGINT PRIMARY KEY,
  -- The hash of the token with which it passes calls on.
  token_hash TEXT COLLATE "C" NOT NULL,
  -- What it knows to be confirmed, as JSON.
  confirmed  TEXT COLLATE "C"
);

-- The last number of each table. A rollback also returns the number, so that numbers are in the order of commits and
-- have no gaps.
CREATE TABLE sqlite_sequence (
  name TEXT COLLATE "C" PRIMARY KEY,
  seq  BIGINT NOT NULL
) WITH (fillfactor = 50);
CREATE FUNCTION next_number(of TEXT) RETURNS BIGINT LANGUAGE sql VOLATILE AS $$
  INSERT INTO sqlite_sequence AS s VALUES (of, 1) ON CONFLICT (name) DO UPDATE SET seq = s.seq + 1 RETURNING s.seq
$$;

-- The functions of the store's SQL that no standard has under one name for all engines. SQLite's are in
-- sqlite/functions.rs.
CREATE FUNCTION larger(a BIGINT, b BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT greatest(a, b) $$;
CREATE FUNCTION smaller(a BIGINT, b BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT least(a, b) $$;
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

-- A text in lower case, as far as the locale of the database knows.
CREATE FUNCTION folded(text TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT lower(normalize(text, NFC) COLLATE "default") COLLATE "C"
$$;
-- The words of a text, separated by spaces: punctuation separates them, and in scripts without spaces each character
-- counts as a word (as in search/unspaced.rs). The words that the server indexes of a text have at most one megabyte,
-- with eight bytes for each beside its own, so the length is limited. A function of an index finds only the server's
-- own functions.
CREATE FUNCTION words_apart(text TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT left(regexp_replace(regexp_replace(
    translate(lower(normalize(text, NFC) COLLATE "default") COLLATE "C", '!"#$%&''()*+,-./:;<=>?@[\]^_`{|}~', repeat(' ', 32)),
    '[\u00A0-\u00A9\u00AB-\u00B1\u00B4\u00B6-\u00B8\u00BB\u00BF\u00D7\u00F7\u2000-\u206F\u20A0-\u20CF\u2190-\u245F\u2500-\u2BFF\u3000-\u3004\u3008-\u3020\uFE10-\uFE4F\uFF01-\uFF0F\uFF1A-\uFF20\uFF3B-\uFF40\uFF5B-\uFF65\U0001F000-\U0001FAFF]',
    ' ', 'g'),
    '([\u0E01-\u0EFF\u1000-\u109F\u1100-\u11FF\u1780-\u17FF\u3005-\u3007\u3021-\u312F\u3130-\u318F\u31A0-\u31BF\u31F0-\u31FF\u3400-\u4DBF\u4E00-\u9FFF\uA960-\uA97F\uA9E0-\uA9FF\uAA60-\uAA7F\uAC00-\uD7FF\uF900-\uFAFF\uFF66-\uFFDC\U0001B000-\U0001B16F\U00020000-\U0003FFFD])',
    ' \1 ', 'g'), 250000)
$$;

-- The refusal of a trigger, which names its reason.
CREATE FUNCTION refuse() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = TG_ARGV[0];
END $$;

-- The conditions of a row. The server parses and plans those of a constraint for each statement, but those of a
-- function once in a session.
CREATE FUNCTION is_run(state TEXT, stop_reason TEXT, until_at BIGINT, outcome TEXT, ended_at BIGINT, claim TEXT, shortfall TEXT,
  pending BIGINT, blocking_pending BIGINT, unread BIGINT, holding BIGINT) RETURNS BOOLEAN LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN state IN ('queued', 'starting', 'running', 'stopping', 'stopped', 'finished')
    AND (state IN ('stopping', 'stopped')) = (stop_reason IS NOT NULL)
    AND (state = 'stopped') = (until_at IS NOT NULL)
    AND (state = 'finished') = (outcome IS NOT NULL)
    AND (state = 'finished') = (ended_at IS NOT NULL)
    AND (claim IS NULL OR claim IN ('success', 'completed', 'partial_success', 'error'))
    AND (shortfall IS NULL OR shortfall IN ('not_accepted', 'not_checked', 'contradicted'))
    AND pending >= 0 AND blocking_pending >= 0 AND unread >= 0 AND holding >= 0;
END $$;
CREATE TABLE runs (
  no                  BIGINT PRIMARY KEY DEFAULT next_number('runs'),
  id                  TEXT COLLATE "C" NOT NULL UNIQUE,
  name                TEXT COLLATE "C" NOT NULL UNIQUE,
  agent               TEXT COLLATE "C" NOT NULL,
  agent_why           TEXT COLLATE "C",
  task                TEXT COLLATE "C" NOT NULL,
  cwd                 TEXT COLLATE "C" NOT NULL,
  patience_ms         BIGINT NOT NULL,
  prompt_via          TEXT COLLATE "C" NOT NULL,
  repository_policies TEXT COLLATE "C",
  owner               TEXT COLLATE "C" NOT NULL,
  parent              TEXT COLLATE "C",
  root                TEXT COLLATE "C" NOT NULL,
  retry_of            TEXT COLLATE "C",
  state               TEXT COLLATE "C" NOT NULL,
  stop_reason         TEXT COLLATE "C",
  until_at            BIGINT,
  outcome             TEXT COLLATE "C",
  failure             TEXT COLLATE "C",
  exit_code           BIGINT,
  exit_signal         BIGINT,
  detail              TEXT COLLATE "C",
  shortfall           TEXT COLLATE "C",
  attempt             BIGINT NOT NULL DEFAULT 0,
  created_at          BIGINT NOT NULL,
  started_at          BIGINT,
  ended_at            BIGINT,
  settled_at          BIGINT,
  updated_at          BIGINT NOT NULL,
  pool                TEXT COLLATE "C" NOT NULL DEFAULT 'default',
  rank                BIGINT NOT NULL DEFAULT 1,
  holding             BIGINT NOT NULL DEFAULT 0,
  after_open          BIGINT NOT NULL DEFAULT 0,
  after_failed        TEXT COLLATE "C" NOT NULL DEFAULT 'cancel',
  summary             TEXT COLLATE "C",
  claim               TEXT COLLATE "C",
  percent             BIGINT,
  progress            TEXT COLLATE "C",
  eta                 TEXT COLLATE "C",
  annotation          TEXT COLLATE "C",
  reported_at         BIGINT,
  report_seq          BIGINT,
  ignored             BIGINT NOT NULL DEFAULT 0,
  ignored_why         TEXT COLLATE "C",
  result              TEXT COLLATE "C",
  result_bytes        BIGINT,
  result_gap          TEXT COLLATE "C",
  reconstructed       TEXT COLLATE "C",
  checkpoint          TEXT COLLATE "C",
  resolution          TEXT COLLATE "C",
  next_step           TEXT COLLATE "C",
  choice              TEXT COLLATE "C",
  session             TEXT COLLATE "C",
  note                TEXT COLLATE "C",
  containment         TEXT COLLATE "C",
  fence               TEXT COLLATE "C",
  swept               BIGINT,
  output_left_open    BIGINT NOT NULL DEFAULT 0,
  port_base           BIGINT,
  port_count          BIGINT,
  resources           TEXT COLLATE "C",
  subagents           TEXT COLLATE "C",
  active_ms           BIGINT NOT NULL DEFAULT 0,
  active_since        BIGINT,
  estimate_ms         BIGINT,
  overdue_at          BIGINT,
  overdue_seq         BIGINT,
  stalled_at          BIGINT,
  stall_seq           BIGINT,
  retrying            TEXT COLLATE "C",
  retrying_seq        BIGINT,
  snapshot_problem    TEXT COLLATE "C",
  snapshot_seq        BIGINT,
  conflict_seq        BIGINT,
  overlap_seq         BIGINT,
  budget_seq          BIGINT,
  input_tokens        BIGINT,
  cached_tokens       BIGINT,
  output_tokens       BIGINT,
  cost_micros         BIGINT,
  unpriced_tokens     BIGINT NOT NULL DEFAULT 0,
  is_priced           BIGINT NOT NULL DEFAULT 0,
  usage_totals        TEXT COLLATE "C",
  pending             BIGINT NOT NULL DEFAULT 0,
  blocking_pending    BIGINT NOT NULL DEFAULT 0,
  unread              BIGINT NOT NULL DEFAULT 0,
  last_seq            BIGINT NOT NULL DEFAULT 0,
  end_seq             BIGINT,
  notified_seq        BIGINT NOT NULL DEFAULT 0,
  CONSTRAINT runs_check CHECK (is_run(state, stop_reason, until_at, outcome, ended_at, claim, shortfall, pending, blocking_pending, unread,
    holding))
)
-- Space for the next version of a row on its page.
WITH (fillfactor = 75);
CREATE INDEX runs_queue ON runs (pool, after_open, rank, owner, agent, no) WHERE state = 'queued';
CREATE INDEX runs_held ON runs (end_seq) WHERE state = 'queued' AND end_seq IS NOT NULL;
CREATE INDEX runs_live ON runs (state, id) WHERE state IN ('starting', 'running', 'stopping');
CREATE INDEX runs_dir ON runs (cwd, no, id, name) WHERE state IN ('starting', 'running', 'stopping');
CREATE INDEX runs_lent ON runs (id) WHERE holding > 0 AND state IN ('starting', 'running', 'stopping');
-- Not the time at which a run exceeds its estimate: a question changes no indexed column of its run, so that the server
-- writes no new entries in the indexes.
CREATE INDEX runs_estimates ON runs (no) WHERE state = 'running' AND estimate_ms IS NOT NULL AND overdue_seq IS NULL;
CREATE INDEX runs_stopped ON runs (until_at) WHERE state = 'stopped';
CREATE INDEX runs_finished ON runs (ended_at) WHERE state = 'finished';
CREATE INDEX runs_settled ON runs (settled_at) WHERE state = 'finished';
CREATE INDEX runs_unfinished ON runs (owner, no) WHERE state <> 'finished';
CREATE INDEX runs_owner ON runs (owner, no);
CREATE INDEX runs_root ON runs (root);
CREATE INDEX runs_parent ON runs (parent, no) WHERE parent IS NOT NULL;
CREATE INDEX runs_ends ON runs (end_seq) WHERE end_seq IS NOT NULL;
CREATE INDEX runs_unnotified ON runs (owner, end_seq) WHERE end_seq > notified_seq;
CREATE TRIGGER runs_finished_never_change BEFORE UPDATE OF state, outcome ON runs FOR EACH ROW WHEN (OLD.state = 'finished')
  EXECUTE FUNCTION refuse('a finished run never changes');

CREATE TABLE run_inputs (
  run       TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  prompt    TEXT COLLATE "C" NOT NULL,
  spec      TEXT COLLATE "C" NOT NULL,
  criteria  TEXT COLLATE "C",
  accept    TEXT COLLATE "C",
  variables TEXT COLLATE "C"
);
CREATE INDEX run_inputs_variables ON run_inputs (variables) WHERE variables IS NOT NULL;

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

CREATE TABLE run_after (
  run       TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  after_run TEXT COLLATE "C" NOT NULL,
  on_end    TEXT COLLATE "C" NOT NULL,
  state     TEXT COLLATE "C" NOT NULL DEFAULT 'open',
  PRIMARY KEY (run, after_run)
);
CREATE INDEX run_after_of ON run_after (after_run);

CREATE TABLE attempts (
  run          TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  n            BIGINT NOT NULL,
  token_hash   BYTEA NOT NULL,
  claimed_at   BIGINT NOT NULL,
  started_at   BIGINT,
  ended_at     BIGINT,
  fact         BIGINT NOT NULL DEFAULT 0,
  agent_end    TEXT COLLATE "C",
  agent_end_at BIGINT,
  gate_usage   TEXT COLLATE "C",
  host         TEXT COLLATE "C",
  lease_ms     BIGINT,
  lost_at      BIGINT,
  PRIMARY KEY (run, n)
);

CREATE TABLE left_on_runners (
  host TEXT COLLATE "C" NOT NULL,
  run  TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (host, run)
);

CREATE TABLE reports (
  run    TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  report TEXT COLLATE "C",
  saw    TEXT COLLATE "C"
);

CREATE TABLE unreadable_blocks (
  run     TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  seq     BIGINT NOT NULL,
  kind    TEXT COLLATE "C" NOT NULL,
  why     TEXT COLLATE "C" NOT NULL,
  digest  TEXT COLLATE "C" NOT NULL,
  message TEXT COLLATE "C",
  settled BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (run, seq)
);

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

CREATE TABLE usage_limits (
  agent       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  until_at    BIGINT NOT NULL,
  spread      BIGINT NOT NULL,
  reported_at BIGINT NOT NULL
);

CREATE TABLE quota_windows (
  agent        TEXT COLLATE "C" NOT NULL,
  minutes      BIGINT NOT NULL,
  used_percent BIGINT NOT NULL,
  resets_at    BIGINT NOT NULL,
  reported_at  BIGINT NOT NULL,
  PRIMARY KEY (agent, minutes)
);

CREATE TABLE agent_memory (
  agent      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  peak_bytes BIGINT NOT NULL
);

CREATE TABLE budgets (
  run         TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  kind        TEXT COLLATE "C" NOT NULL,
  amount      BIGINT NOT NULL CHECK (amount >= 0),
  used        BIGINT NOT NULL DEFAULT 0 CHECK (used >= 0),
  reserved    BIGINT NOT NULL DEFAULT 0 CHECK (reserved >= 0),
  lender      TEXT COLLATE "C",
  is_returned BIGINT NOT NULL DEFAULT 0,
  is_hard     BIGINT NOT NULL DEFAULT 0,
  is_warned   BIGINT NOT NULL DEFAULT 0,
  unstated    BIGINT NOT NULL DEFAULT 0,
  unpriced    BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (run, kind)
);

CREATE TABLE workspaces (
  run_id      TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  kind        TEXT COLLATE "C" NOT NULL,
  repository  TEXT COLLATE "C" NOT NULL,
  base        TEXT COLLATE "C" NOT NULL,
  branch      TEXT COLLATE "C",
  changes     TEXT COLLATE "C",
  path        TEXT COLLATE "C" NOT NULL UNIQUE,
  state       TEXT COLLATE "C" NOT NULL DEFAULT 'planned',
  spec        TEXT COLLATE "C",
  preparation TEXT COLLATE "C"
);

CREATE TABLE merges (
  run_id        TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  n             BIGINT NOT NULL,
  is_done       BIGINT NOT NULL DEFAULT 0,
  mode          TEXT COLLATE "C" NOT NULL,
  repository    TEXT COLLATE "C" NOT NULL,
  git_ref       TEXT COLLATE "C",
  before_commit TEXT COLLATE "C" NOT NULL,
  after_commit  TEXT COLLATE "C" NOT NULL,
  snapshot      BIGINT NOT NULL,
  user_name     TEXT COLLATE "C" NOT NULL,
  user_email    TEXT COLLATE "C" NOT NULL,
  reason        TEXT COLLATE "C" NOT NULL,
  merged_by     TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (run_id, n)
);
CREATE INDEX merges_under_way ON merges (is_done) WHERE is_done = 0;

CREATE TABLE undos (
  run_id          TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
  to_snapshot     BIGINT NOT NULL,
  before_snapshot BIGINT NOT NULL,
  is_forced       BIGINT NOT NULL,
  is_interrupted  BIGINT NOT NULL DEFAULT 0
);

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

CREATE TABLE announcements (
  run   TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  kind  TEXT COLLATE "C" NOT NULL,
  what  TEXT COLLATE "C" NOT NULL,
  place TEXT COLLATE "C" NOT NULL,
  top   TEXT COLLATE "C" NOT NULL,
  at    BIGINT NOT NULL,
  PRIMARY KEY (run, kind, what)
);

CREATE TABLE "overlaps" (
  first  TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  second TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  items  TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (first, second)
);
CREATE INDEX overlaps_second ON "overlaps" (second);

-- The conditions of a row.
CREATE FUNCTION is_request(kind TEXT, status TEXT, matter TEXT, answer TEXT, answered_at BIGINT, answered_by TEXT, retrieved_at BIGINT, ended_at BIGINT,
  verdict TEXT, child TEXT, child_name TEXT, outcome TEXT, held BIGINT) RETURNS BOOLEAN LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN kind IN ('question', 'approval', 'delegation') AND (kind = 'question') = (matter IS NULL)
    AND status IN ('pending', 'answered', 'retrieved', 'expired', 'withdrawn')
    AND (status IN ('answered', 'retrieved')) = (answer IS NOT NULL)
    AND (answer IS NULL) = (answered_at IS NULL) AND (answer IS NULL) = (answered_by IS NULL)
    AND (status = 'retrieved') = (retrieved_at IS NOT NULL)
    AND (status IN ('expired', 'withdrawn')) = (ended_at IS NOT NULL)
    AND (verdict IS NULL OR verdict IN ('approved', 'denied')) AND (verdict IS NULL OR answer IS NOT NULL)
    AND (child IS NULL OR kind = 'delegation' AND verdict = 'approved')
    AND (child IS NULL) = (child_name IS NULL)
    AND (held = 0 OR child IS NOT NULL)
    AND (outcome IS NULL OR child IS NOT NULL AND held = 0);
END $$;
CREATE TABLE requests (
  no            BIGINT PRIMARY KEY DEFAULT next_number('requests'),
  id            TEXT COLLATE "C" NOT NULL UNIQUE,
  run           TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  kind          TEXT COLLATE "C" NOT NULL,
  question      TEXT COLLATE "C" NOT NULL,
  context       TEXT COLLATE "C",
  options       TEXT COLLATE "C" NOT NULL DEFAULT '[]',
  fallback      TEXT COLLATE "C",
  matter        TEXT COLLATE "C",
  blocking      BIGINT NOT NULL,
  by_block      BIGINT NOT NULL DEFAULT 0,
  patience_ms   BIGINT NOT NULL,
  group_no      BIGINT,
  clarification TEXT COLLATE "C",
  own_id        TEXT COLLATE "C",
  status        TEXT COLLATE "C" NOT NULL DEFAULT 'pending',
  answer        TEXT COLLATE "C",
  answered_by   TEXT COLLATE "C",
  verdict       TEXT COLLATE "C",
  changes       TEXT COLLATE "C",
  told          BIGINT,
  child         TEXT COLLATE "C",
  child_name    TEXT COLLATE "C",
  outcome       TEXT COLLATE "C",
  held          BIGINT NOT NULL DEFAULT 0,
  escalated     TEXT COLLATE "C",
  asked_at      BIGINT NOT NULL,
  waits_since   BIGINT NOT NULL,
  expires_at    BIGINT NOT NULL,
  answered_at   BIGINT,
  retrieved_at  BIGINT,
  ended_at      BIGINT,
  CONSTRAINT requests_check CHECK (is_request(kind, status, matter, answer, answered_at, answered_by, retrieved_at, ended_at, verdict,
    child, child_name, outcome, held))
);
CREATE INDEX requests_pending ON requests (run, no) WHERE status = 'pending';
CREATE INDEX requests_inbox ON requests (no, expires_at) WHERE status = 'pending';
CREATE INDEX requests_run ON requests (run, no);
CREATE INDEX requests_group ON requests (group_no) WHERE group_no IS NOT NULL;
CREATE UNIQUE INDEX requests_child ON requests (child) WHERE child IS NOT NULL;
CREATE FUNCTION refuse_older_child() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT no FROM runs WHERE id = NEW.child) <= (SELECT no FROM runs WHERE id = NEW.run) THEN
    RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = 'a run waits for younger ones only';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER requests_wait_for_the_younger BEFORE UPDATE OF held ON requests FOR EACH ROW WHEN (NEW.held = 1) EXECUTE FUNCTION refuse_older_child();

CREATE TABLE grants (
  no         BIGINT PRIMARY KEY DEFAULT next_number('grants'),
  root       TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  identity   TEXT COLLATE "C" NOT NULL,
  what       TEXT COLLATE "C" NOT NULL,
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

CREATE TABLE messages (
  no           BIGINT PRIMARY KEY DEFAULT next_number('messages'),
  id           TEXT COLLATE "C" NOT NULL UNIQUE,
  run          TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  sender       TEXT COLLATE "C" NOT NULL,
  text         TEXT COLLATE "C" NOT NULL,
  sent_at      BIGINT NOT NULL,
  delivery     TEXT COLLATE "C" NOT NULL DEFAULT 'queued' CHECK (delivery IN ('queued', 'live', 'tool_result', 'prompt')),
  delivered_at BIGINT,
  entry        BIGINT,
  note_of      BIGINT,
  read_at      BIGINT,
  CHECK ((delivery = 'queued') = (delivered_at IS NULL))
);
CREATE INDEX messages_queued ON messages (run, no) WHERE delivery = 'queued';
CREATE INDEX messages_run ON messages (run, no);
CREATE INDEX messages_note ON messages (note_of) WHERE note_of IS NOT NULL;
CREATE INDEX messages_unread ON messages (run) WHERE note_of IS NOT NULL AND read_at IS NULL AND delivery <> 'queued';

CREATE TABLE events (
  seq     BIGINT PRIMARY KEY DEFAULT next_number('events'),
  at      BIGINT NOT NULL,
  kind    TEXT COLLATE "C" NOT NULL,
  run     TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  request TEXT COLLATE "C",
  by      TEXT COLLATE "C" NOT NULL,
  text    TEXT COLLATE "C" NOT NULL,
  signal  TEXT COLLATE "C",
  source  TEXT COLLATE "C"
);
CREATE INDEX events_run ON events (run, seq);
CREATE INDEX events_signals ON events (run, seq) WHERE signal IS NOT NULL;

CREATE TABLE pool_events (
  seq  BIGINT PRIMARY KEY,
  at   BIGINT NOT NULL,
  kind TEXT COLLATE "C" NOT NULL,
  pool TEXT COLLATE "C" NOT NULL,
  by   TEXT COLLATE "C" NOT NULL,
  text TEXT COLLATE "C" NOT NULL
);

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
  ttl_ms     BIGINT NOT NULL,
  due_at     BIGINT NOT NULL,
  CHECK ((status = 'completed') = (result IS NOT NULL))
);
CREATE INDEX tasks_created ON tasks (created_at);

CREATE TABLE chats (
  id            BIGINT PRIMARY KEY DEFAULT next_number('chats'),
  kind          TEXT COLLATE "C" NOT NULL CHECK (kind IN ('chat', 'direct', 'board')),
  title         TEXT COLLATE "C" NOT NULL,
  owner         TEXT COLLATE "C" NOT NULL,
  root          TEXT COLLATE "C",
  private       BIGINT NOT NULL DEFAULT 0,
  pair          TEXT COLLATE "C" UNIQUE,
  template      TEXT COLLATE "C",
  instructions  TEXT COLLATE "C",
  window_chars  BIGINT NOT NULL,
  window_tokens BIGINT,
  turns_max     BIGINT NOT NULL,
  branch_of     BIGINT REFERENCES chats (id),
  branch_seq    BIGINT,
  branch_said   BIGINT NOT NULL DEFAULT 0,
  archived      BIGINT NOT NULL DEFAULT 0,
  imported      BIGINT NOT NULL DEFAULT 0,
  importing     BIGINT,
  linked        TEXT COLLATE "C",
  started_by    TEXT COLLATE "C" NOT NULL,
  started_name  TEXT COLLATE "C" NOT NULL,
  started_at    BIGINT NOT NULL,
  last_at       BIGINT NOT NULL,
  last_seq      BIGINT NOT NULL DEFAULT 0,
  said          BIGINT NOT NULL DEFAULT 0,
  changes       BIGINT NOT NULL DEFAULT 0,
  summary_seq   BIGINT,
  CHECK ((branch_of IS NULL) = (branch_seq IS NULL)),
  CHECK ((kind = 'chat') = (pair IS NULL))
);
CREATE INDEX chats_recent ON chats (archived, last_at, id);
CREATE INDEX chats_owner ON chats (owner, archived, last_at, id);
CREATE INDEX chats_branches ON chats (branch_of) WHERE branch_of IS NOT NULL;
CREATE INDEX chats_importing ON chats (importing) WHERE importing IS NOT NULL;

CREATE TABLE chat_members (
  chat        BIGINT NOT NULL REFERENCES chats (id),
  who         TEXT COLLATE "C" NOT NULL,
  name        TEXT COLLATE "C" NOT NULL,
  joined_at   BIGINT,
  read_seq    BIGINT NOT NULL DEFAULT 0,
  mention_seq BIGINT NOT NULL DEFAULT 0,
  said        BIGINT NOT NULL DEFAULT 0,
  seen_at     BIGINT,
  PRIMARY KEY (chat, who)
);
CREATE INDEX chat_members_who ON chat_members (who, chat);
CREATE INDEX chat_members_named ON chat_members (who, chat) WHERE mention_seq > read_seq;

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
  hops      BIGINT NOT NULL DEFAULT 0,
  pinned    BIGINT NOT NULL DEFAULT 0,
  revision  BIGINT NOT NULL DEFAULT 0,
  edited_at BIGINT,
  changed   BIGINT NOT NULL DEFAULT 0,
  key       TEXT COLLATE "C",
  UNIQUE (chat, seq),
  CHECK ((revision = 0) = (edited_at IS NULL))
);
CREATE INDEX chat_messages_pinned ON chat_messages (chat, seq) WHERE pinned = 1;
CREATE INDEX chat_messages_replies ON chat_messages (chat, reply_to) WHERE reply_to IS NOT NULL;
CREATE INDEX chat_messages_changed ON chat_messages (chat, changed) WHERE changed > 0;
CREATE UNIQUE INDEX chat_messages_key ON chat_messages (chat, key) WHERE key IS NOT NULL;
CREATE FUNCTION refuse_removal() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT importing FROM chats WHERE id = OLD.chat) IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = 'an entry of a chat stays';
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER chat_messages_stay BEFORE DELETE ON chat_messages FOR EACH ROW EXECUTE FUNCTION refuse_removal();
CREATE TRIGGER chat_messages_keep_their_place BEFORE UPDATE OF chat, seq, author, at ON chat_messages FOR EACH ROW WHEN (OLD.key IS NULL)
  EXECUTE FUNCTION refuse('an entry of a chat keeps its place and its author');
CREATE INDEX chat_messages_words ON chat_messages USING gin (to_tsvector('simple', words_apart(text)));

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

CREATE TABLE chat_seen (
  id    BIGINT PRIMARY KEY CHECK (id = 1),
  entry BIGINT NOT NULL
);
INSERT INTO chat_seen VALUES (1, 0);

CREATE TABLE chat_hours (
  hour  BIGINT PRIMARY KEY,
  first BIGINT NOT NULL,
  last  BIGINT NOT NULL
);

CREATE TABLE search_docs (
  id   BIGINT PRIMARY KEY DEFAULT next_number('search_docs'),
  kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('request', 'report')),
  ref  TEXT COLLATE "C" NOT NULL UNIQUE,
  run  TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  at   BIGINT NOT NULL
);
CREATE INDEX search_docs_run ON search_docs (run);

-- The text of requests and reports, and tags that a search filters by.
CREATE TABLE search_fts (
  rowid BIGINT PRIMARY KEY REFERENCES search_docs (id) ON DELETE CASCADE,
  tags  TEXT COLLATE "C" NOT NULL,
  text  TEXT COLLATE "C" NOT NULL
);
CREATE INDEX search_fts_words ON search_fts USING gin (to_tsvector('simple', words_apart(text)));

CREATE TABLE search_seen (
  id  BIGINT PRIMARY KEY CHECK (id = 1),
  seq BIGINT NOT NULL
);
INSERT INTO search_seen VALUES (1, 0);

CREATE TABLE peers (
  id          BIGINT PRIMARY KEY DEFAULT next_number('peers'),
  name        TEXT COLLATE "C" NOT NULL UNIQUE,
  token       BIGINT,
  url         TEXT COLLATE "C",
  fingerprint TEXT COLLATE "C",
  secret      TEXT COLLATE "C",
  blocked     BIGINT NOT NULL DEFAULT 0,
  added_at    BIGINT NOT NULL,
  CHECK ((url IS NULL) = (secret IS NULL))
);

CREATE TABLE chat_shares (
  chat      BIGINT NOT NULL REFERENCES chats (id),
  peer      BIGINT NOT NULL REFERENCES peers (id) ON DELETE CASCADE,
  read_only BIGINT NOT NULL,
  PRIMARY KEY (chat, peer)
);
CREATE INDEX chat_shares_peer ON chat_shares (peer, chat);

CREATE TABLE peer_posts (
  peer    TEXT COLLATE "C" NOT NULL,
  key     TEXT COLLATE "C" NOT NULL,
  message BIGINT NOT NULL REFERENCES chat_messages (id),
  PRIMARY KEY (peer, key)
);
CREATE UNIQUE INDEX peer_posts_message ON peer_posts (message);

CREATE TABLE followed_chats (
  chat      BIGINT PRIMARY KEY REFERENCES chats (id),
  peer      BIGINT REFERENCES peers (id) ON DELETE SET NULL,
  peer_name TEXT COLLATE "C" NOT NULL,
  remote    BIGINT NOT NULL,
  mark      TEXT COLLATE "C",
  changes   BIGINT NOT NULL DEFAULT 0,
  ended     TEXT COLLATE "C"
);
CREATE UNIQUE INDEX followed_chats_remote ON followed_chats (peer, remote) WHERE ended IS NULL;

CREATE TABLE peer_outbox (
  no       BIGINT PRIMARY KEY DEFAULT next_number('peer_outbox'),
  key      TEXT COLLATE "C" NOT NULL UNIQUE,
  chat     BIGINT NOT NULL REFERENCES followed_chats (chat),
  author   TEXT COLLATE "C" NOT NULL,
  name     TEXT COLLATE "C" NOT NULL,
  text     TEXT COLLATE "C" NOT NULL,
  reply_to BIGINT,
  at       BIGINT NOT NULL,
  state    TEXT COLLATE "C" NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivered', 'refused')),
  problem  TEXT COLLATE "C",
  CHECK ((state = 'refused') = (problem IS NOT NULL))
);
CREATE INDEX peer_outbox_next ON peer_outbox (chat, state, no);

CREATE TABLE webhooks (
  url     TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  dropped BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE webhook_events (
  kind TEXT COLLATE "C" NOT NULL,
  url  TEXT COLLATE "C" NOT NULL REFERENCES webhooks (url) ON DELETE CASCADE,
  PRIMARY KEY (kind, url)
);

CREATE TABLE outbox (
  no       BIGINT PRIMARY KEY DEFAULT next_number('outbox'),
  id       TEXT COLLATE "C" NOT NULL UNIQUE,
  url      TEXT COLLATE "C" NOT NULL REFERENCES webhooks (url) ON DELETE CASCADE,
  kind     TEXT COLLATE "C" NOT NULL,
  at       BIGINT NOT NULL,
  run      TEXT COLLATE "C",
  request  TEXT COLLATE "C",
  entry    BIGINT,
  by       TEXT COLLATE "C" NOT NULL,
  text     TEXT COLLATE "C" NOT NULL,
  state    TEXT COLLATE "C" NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'parked')),
  attempts BIGINT NOT NULL DEFAULT 0,
  next_at  BIGINT NOT NULL DEFAULT 0,
  problem  TEXT COLLATE "C"
);
CREATE INDEX outbox_next ON outbox (url, state, no);

CREATE TABLE tokens (
  id         BIGINT PRIMARY KEY DEFAULT next_number('tokens'),
  name       TEXT COLLATE "C" NOT NULL,
  hash       TEXT COLLATE "C" UNIQUE,
  role       TEXT COLLATE "C" NOT NULL,
  client     TEXT COLLATE "C",
  created_at BIGINT NOT NULL,
  used_at    BIGINT,
  revoked_at BIGINT,
  program    TEXT COLLATE "C",
  resume     TEXT COLLATE "C",
  left_at    BIGINT,
  CHECK ((hash IS NULL) = (revoked_at IS NOT NULL))
);
CREATE UNIQUE INDEX tokens_name ON tokens (name) WHERE revoked_at IS NULL;
CREATE UNIQUE INDEX tokens_resume ON tokens (resume) WHERE resume IS NOT NULL;

CREATE TABLE trusted (
  cwd  TEXT COLLATE "C" NOT NULL,
  hash TEXT COLLATE "C" NOT NULL,
  by   TEXT COLLATE "C" NOT NULL,
  at   BIGINT NOT NULL,
  PRIMARY KEY (cwd, hash)
);

CREATE TABLE policies_in_effect (
  one     BIGINT PRIMARY KEY CHECK (one = 1),
  source  TEXT COLLATE "C" NOT NULL,
  digest  TEXT COLLATE "C" NOT NULL,
  guarded BIGINT NOT NULL
);

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

CREATE TABLE eras (
  era      BIGINT PRIMARY KEY,
  began_at BIGINT NOT NULL,
  gaps     TEXT COLLATE "C" NOT NULL
);
