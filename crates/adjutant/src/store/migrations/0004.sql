-- What expires next is known to whoever keeps the deadlines; only then all that is open is looked through.
DROP INDEX requests_due;
DROP INDEX requests_inbox;
CREATE INDEX requests_inbox ON requests (no, expires_at) WHERE status = 'pending';
-- What these did is done where an event or an entry is added: a statement that fires a trigger keeps a journal of its
-- own.
DROP TRIGGER events_go_out;
DROP TRIGGER chat_messages_go_out;
DROP TRIGGER chat_messages_hour;
