-- Schema version 22. The comments are in the migration for SQLite.

ALTER TABLE runs ADD COLUMN reported_at BIGINT;
ALTER TABLE runs ADD COLUMN report_seq BIGINT;
