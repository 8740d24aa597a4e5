-- Schema version 5: signals.
-- What the asker calls a question, and what it said along with those that it asked together: in JSON, with the first
-- of them.
ALTER TABLE requests ADD COLUMN own_id TEXT;
ALTER TABLE requests ADD COLUMN clarification TEXT;
-- What a run was sent is told again to an attempt that does not remember it.
CREATE INDEX messages_run ON messages (run, no);
