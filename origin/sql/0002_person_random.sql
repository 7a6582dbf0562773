-- Random bytes of a person, drawn once: its buckets come from them (S4.1, S4.3). Rows that are there get theirs now.
ALTER TABLE people ADD COLUMN random BLOB;
UPDATE people SET random = randomblob(16);
