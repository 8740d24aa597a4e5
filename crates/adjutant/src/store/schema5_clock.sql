-- Schema version 5: clock.

-- When an attempt's agent ended, by its supervisor.
ALTER TABLE attempts ADD COLUMN agent_end_at INTEGER;
