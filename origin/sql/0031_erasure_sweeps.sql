-- People whose visitors' snapshots may name somebody erased, and are not all put in the outbox yet: what puts them notes them
-- among the erasure's keys, which waits for that. People that are told at once have a row within the transaction alone.
CREATE TABLE erasure_sweeps (
    tenant  INTEGER NOT NULL,
    receipt BLOB    NOT NULL,           -- of the erasure
    person  INTEGER NOT NULL,           -- one of `sweeps`
    rounds  INTEGER NOT NULL,           -- 1: this round comes to all of its visitors; 2: the next one does
    PRIMARY KEY (tenant, receipt, person)
) STRICT, WITHOUT ROWID;
CREATE INDEX erasure_sweeps_by_person ON erasure_sweeps (person);

ALTER TABLE sweeps ADD COLUMN put INTEGER NOT NULL DEFAULT 0; -- when it went on last: where an erasure waits, before the outbox is empty
