-- Who linked, unlinked and erased, and why. Kept for ever; of who is erased no row holds an id.
CREATE TABLE audit (
    row     INTEGER PRIMARY KEY,        -- in the order in which they were kept
    tenant  INTEGER NOT NULL,
    id      BLOB    NOT NULL,           -- FactId of its first fact: of an erasure the receipt. Of an import drawn once a run
    at      INTEGER NOT NULL,           -- when it was asked for
    what    TEXT    NOT NULL,           -- link, unlink, erase
    by      TEXT    NOT NULL,           -- token:NUMBER, cli, visitor, job:NAME; admin, journal: of an earlier release
    name    TEXT,                       -- the token's, or that of the operating system's user
    role    TEXT,                       -- the token's
    reason  TEXT,
    visitor BLOB,
    other   BLOB,                       -- the other visitor
    kind    INTEGER,                    -- of the alternate id, where there is one
    hash    BLOB,                       -- as it was said, see `alternates`
    count   INTEGER NOT NULL,           -- pieces of evidence that came or ended, visitors erased
    UNIQUE (tenant, id, at)
) STRICT;
CREATE INDEX audit_of_tenant ON audit (tenant);
CREATE INDEX audit_by_visitor ON audit (tenant, visitor) WHERE visitor IS NOT NULL;
CREATE INDEX audit_by_other ON audit (tenant, other) WHERE other IS NOT NULL;
CREATE INDEX audit_by_id ON audit (tenant, kind, hash) WHERE hash IS NOT NULL;
