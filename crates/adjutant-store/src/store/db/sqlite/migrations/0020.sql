-- Schema version 20: the sign-in of a page.

-- The program, while it runs, from which alone the token of a browser counts. NULL: no process could be seen at the sign-in.
ALTER TABLE tokens ADD COLUMN program TEXT;
-- The SHA-256 of the code with which the page continues after a reload.
ALTER TABLE tokens ADD COLUMN resume TEXT;
-- When the page was left.
ALTER TABLE tokens ADD COLUMN left_at INTEGER;
CREATE UNIQUE INDEX tokens_resume ON tokens (resume) WHERE resume IS NOT NULL;
