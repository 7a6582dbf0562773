-- How surely a visitor belongs to its person, per mille: as the weakest link is on the way to who holds the person's unique
-- id, or to its master. Of people, their master's.
ALTER TABLE visitors ADD COLUMN weight INTEGER NOT NULL DEFAULT 1000;
ALTER TABLE people ADD COLUMN weight INTEGER NOT NULL DEFAULT 1000;
DROP INDEX visitors_by_id;
CREATE INDEX visitors_by_id ON visitors (tenant, visitor, person, weight);

-- `evidence.source` 3 to 6: an imported match, a household, a device, a model. What anyone may say weighs nothing.
UPDATE evidence SET weight = 0 WHERE source = 2 AND weight < 1000;
