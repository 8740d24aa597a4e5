-- Schema version 5: attention.

-- Position of the newest stop or end of the run that its owner was notified of. The largest number: the
-- owner is notified in another way, such as a chat that gets the run's answer.
ALTER TABLE runs ADD COLUMN notified_seq INTEGER NOT NULL DEFAULT 0;
-- How a run that succeeded fell short of what its dispatcher wanted.
ALTER TABLE runs ADD COLUMN shortfall TEXT CHECK (shortfall IN ('not_accepted', 'not_checked', 'contradicted'));
-- What happened before counts as known.
UPDATE runs SET notified_seq = end_seq WHERE end_seq IS NOT NULL;
CREATE INDEX runs_unnotified ON runs (owner, end_seq) WHERE end_seq > notified_seq;
