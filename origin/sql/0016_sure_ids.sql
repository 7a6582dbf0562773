-- Of an id, what says something and what anyone may say: each in an index of its own, so that a million who only claim an id
-- cost those who have it nothing.
DROP INDEX evidence_of_id;
CREATE INDEX evidence_of_id ON evidence (tenant, kind, hash, last DESC, visitor, cancelled) WHERE weight > 0;
CREATE INDEX claims_of_id ON evidence (tenant, kind, hash, last DESC, visitor) WHERE weight = 0;
-- What was decided of those that say nothing is nothing.
UPDATE evidence SET flag = NULL WHERE weight = 0 AND flag IS NOT NULL;

-- Somebody else left while a sweep goes on: it goes round once more, and people take turns.
ALTER TABLE sweeps ADD COLUMN again INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sweeps ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sweeps_by_turn ON sweeps (turn);
