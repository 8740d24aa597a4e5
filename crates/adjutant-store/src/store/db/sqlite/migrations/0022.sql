-- Schema version 22.

-- When the newest attempt has reported its result, and the event that recorded it. NULL: it has not, or has made a statement since.
ALTER TABLE runs ADD COLUMN reported_at INTEGER;
ALTER TABLE runs ADD COLUMN report_seq INTEGER;
