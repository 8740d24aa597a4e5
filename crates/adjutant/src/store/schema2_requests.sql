-- An asker that waits for its answer has it when it is given.
DROP TRIGGER requests_move_forward;
CREATE TRIGGER requests_move_forward BEFORE UPDATE OF status ON requests
  WHEN NEW.status <> OLD.status AND NOT (
    (OLD.status = 'pending' AND NEW.status IN ('answered', 'retrieved', 'expired', 'withdrawn'))
    OR (OLD.status = 'answered' AND NEW.status = 'retrieved'))
  BEGIN SELECT RAISE (ABORT, 'a request never moves back'); END;
