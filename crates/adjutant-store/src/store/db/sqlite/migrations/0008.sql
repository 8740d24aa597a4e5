-- Schema version 8: speed.

-- The statement that changes a request checks the transition itself: one that fires a trigger writes a statement journal.
DROP TRIGGER requests_move_forward;
