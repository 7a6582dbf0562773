-- In which hours of the week all people of a tenant are active, by their clocks: 168 sums of eight bytes.
CREATE TABLE rhythms (
    tenant INTEGER PRIMARY KEY,
    people INTEGER NOT NULL,            -- of how many
    summed INTEGER NOT NULL,            -- when
    hours  BLOB    NOT NULL
) STRICT;
-- The best time that a visitor's snapshot handed out last says: 256 times the hour, and the confidence. A version's value stays
-- what it was, whatever everybody does since.
ALTER TABLE visitors ADD COLUMN best INTEGER;
