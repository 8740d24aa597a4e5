-- Schema version 5: attention.

-- Position of the newest stop or end of the run that its owner was notified of. The largest number: the
-- owner is notified in another way, such as a chat that gets the run's answer.
ALTER TABLE runs ADD COLUMN notified_seq INTEGER NOT NULL DEFAULT 0;
-- How a successful run fell short of its dispatcher's requirements.
ALTER TABLE runs ADD COLUMN shortfall TEXT CHECK (shortfall IN ('not_accepted', 'not_checked', 'contradicted'));
-- The owner counts as notified of earlier ends.
UPDATE runs SET notified_seq = end_seq WHERE end_seq IS NOT NULL;
CREATE INDEX runs_unnotified ON runs (owner, end_seq) WHERE end_seq > notified_seq;
-- Schema version 5: signals.
-- The run's own name for a question, and the clarification of a group, in JSON, with the first question.
ALTER TABLE requests ADD COLUMN own_id TEXT;
ALTER TABLE requests ADD COLUMN clarification TEXT;
-- Finds delivered messages for an attempt in a new session.
CREATE INDEX messages_run ON messages (run, no);
-- Schema version 5: stops.
-- The start of the active time that `active_ms` does not contain yet.
ALTER TABLE runs ADD COLUMN active_since INTEGER;
-- The active time at which the run should finish by its newest estimate; when it exceeded that, and the event that
-- recorded it.
ALTER TABLE runs ADD COLUMN estimate_ms INTEGER;
ALTER TABLE runs ADD COLUMN overdue_at INTEGER;
ALTER TABLE runs ADD COLUMN overdue_seq INTEGER;
CREATE INDEX runs_estimates ON runs (active_since + estimate_ms - active_ms)
  WHERE state = 'running' AND active_since IS NOT NULL AND estimate_ms IS NOT NULL AND overdue_seq IS NULL;
-- Schema version 5: chats.
-- Two participants have one direct chat, independent of their trees of runs.
UPDATE OR IGNORE chats SET pair = owner || '|' || substr(pair, length(owner) + length(root) + 2) WHERE kind = 'direct' AND root IS NOT NULL;
-- The title `Board` now names the board of the owner.
UPDATE chats SET title = 'Board of ' || (SELECT name FROM runs WHERE id = chats.root)
  WHERE kind = 'board' AND root IN (SELECT id FROM runs);
-- The chat entry that a message to a run carries whole: reading one counts as reading the other.
ALTER TABLE messages ADD COLUMN entry INTEGER;
-- Composed and decomposed characters match each other: indexed text is normalized to NFC (see the function
-- `index_text`). Only entries and documents that this changes are indexed again.
INSERT INTO chat_fts (chat_fts, rowid, tags, text) SELECT 'delete', s.id, s.tags, s.text FROM chat_messages m JOIN chat_search s ON s.id = m.id
  WHERE s.text <> index_text(m.text) AND m.id <= (SELECT entry FROM chat_seen);
DROP VIEW chat_search;
CREATE VIEW chat_search AS
  SELECT m.id, 'c' || m.chat || ' o' || hex(c.owner) || ' r' || coalesce(hex(c.root), '') || ' a' || hex(m.author)
    || CASE WHEN instr(m.text, '?') > 0 THEN ' q' ELSE '' END AS tags, index_text(m.text) AS text
  FROM chat_messages m JOIN chats c ON c.id = m.chat;
INSERT INTO chat_fts (rowid, tags, text) SELECT s.id, s.tags, s.text FROM chat_messages m JOIN chat_search s ON s.id = m.id
  WHERE s.text <> set_apart(m.text) AND m.id <= (SELECT entry FROM chat_seen);
UPDATE search_fts SET text = reindex_text(text) WHERE text <> reindex_text(text);
-- Schema version 5: clock.

-- When an attempt's agent ended, as its supervisor reports.
ALTER TABLE attempts ADD COLUMN agent_end_at INTEGER;

-- If there is a row, free pages and the log may still contain removed secrets, so the database must be rewritten.
CREATE TABLE wipes (since INTEGER NOT NULL) STRICT;
INSERT INTO wipes SELECT 1 WHERE EXISTS (SELECT 1 FROM run_inputs) OR EXISTS (SELECT 1 FROM chat_turns);

-- The steady clock, in milliseconds: its time at a reading of the machine's clocks, the off-time before the last boot
-- that is not counted yet, and the last jump of the wall clock.
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

-- On the steady clock: when a run finished, and when a stored wait expires.
ALTER TABLE runs ADD COLUMN settled_at INTEGER;
UPDATE runs SET settled_at = ended_at WHERE state = 'finished';
CREATE INDEX runs_settled ON runs (settled_at) WHERE state = 'finished';
ALTER TABLE tasks ADD COLUMN due_at INTEGER;
UPDATE tasks SET due_at = created_at + ttl_ms;
