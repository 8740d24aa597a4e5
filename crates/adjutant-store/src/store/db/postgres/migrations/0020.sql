-- Schema version 20. The comments are in the migration for SQLite.

ALTER TABLE tokens ADD COLUMN program TEXT COLLATE "C";
ALTER TABLE tokens ADD COLUMN resume TEXT COLLATE "C";
ALTER TABLE tokens ADD COLUMN left_at BIGINT;
CREATE UNIQUE INDEX tokens_resume ON tokens (resume) WHERE resume IS NOT NULL;
