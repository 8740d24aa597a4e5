-- Schema version 14.

-- The file with the variables that the dispatcher set for a run, in the directory of the credentials. Kept as long as the run,
-- because a later attempt or a retry needs it.
ALTER TABLE run_inputs ADD COLUMN variables TEXT;
CREATE INDEX run_inputs_variables ON run_inputs (variables) WHERE variables IS NOT NULL;
