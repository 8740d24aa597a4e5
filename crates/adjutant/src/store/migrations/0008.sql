-- Schema version 8: speed.

-- The statement that moves a request checks it: one that fires a trigger collects its rows and keeps a journal first.
DROP TRIGGER requests_move_forward;
