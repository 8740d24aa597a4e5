-- Schema version 16. The comments are in the migration for SQLite.

ALTER TABLE attempts ADD COLUMN host TEXT COLLATE "C";
ALTER TABLE attempts ADD COLUMN lease_ms BIGINT;
ALTER TABLE attempts ADD COLUMN lost_at BIGINT;
