-- FactIds of a day that has filled its rows in `fact_ids`, a row each: to fold a fact of somebody with very many reads no more
-- than those rows and one of these, however many there are.
CREATE TABLE fact_ids_over (
    visitor INTEGER NOT NULL,           -- row in `visitors`
    day     INTEGER NOT NULL,           -- since 2019
    id      INTEGER NOT NULL,           -- first eight bytes, as a signed number
    PRIMARY KEY (visitor, day, id)
) STRICT, WITHOUT ROWID;
