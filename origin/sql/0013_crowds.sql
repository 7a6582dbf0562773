-- Whether an id was seen with more visitors than one person has, from the index alone.
CREATE INDEX evidence_of_id ON evidence (tenant, kind, hash, last DESC, visitor, cancelled);
DROP INDEX evidence_by_id;

-- People with many visitors, all of whose snapshots must be written anew as somebody left: put in the outbox bit by bit, the
-- last active first. A visitor that becomes active meanwhile is published for that.
CREATE TABLE sweeps (
    person    INTEGER PRIMARY KEY,
    before    INTEGER NOT NULL,         -- version counter: snapshots handed out after it are right
    last_seen INTEGER NOT NULL,         -- the visitor it has come to
    visitor   INTEGER NOT NULL          -- its row
) STRICT;
