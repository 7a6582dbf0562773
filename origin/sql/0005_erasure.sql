-- What ended, and what was erased.

-- Evidence that the admin side ended, kept also before the evidence comes: `evidence.cancelled` follows from it.
CREATE TABLE cancellations (
    tenant  INTEGER NOT NULL,
    visitor BLOB    NOT NULL,
    kind    INTEGER NOT NULL,
    hash    BLOB    NOT NULL,           -- canonical, see `alternates`
    at      INTEGER NOT NULL,           -- the newest cancellation
    PRIMARY KEY (tenant, visitor, kind, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX cancellations_by_id ON cancellations (tenant, kind, hash);

-- Visitors erased, for ever: what comes of them is refused. Their rows in `visitors` keep the tombstone alone.
CREATE TABLE erased (
    tenant  INTEGER NOT NULL,
    visitor BLOB    NOT NULL,
    at      INTEGER NOT NULL,           -- receipt of the erasure
    receipt BLOB    NOT NULL,
    PRIMARY KEY (tenant, visitor)
) STRICT, WITHOUT ROWID;

-- Alternate ids erased, under each of their hashes: who was seen with one until `at` is erased too.
CREATE TABLE erased_ids (
    tenant  INTEGER NOT NULL,
    kind    INTEGER NOT NULL,
    hash    BLOB    NOT NULL,
    at      INTEGER NOT NULL,           -- the newest erasure
    receipt BLOB    NOT NULL,
    PRIMARY KEY (tenant, kind, hash)
) STRICT, WITHOUT ROWID;

-- One row an erasure asked for.
CREATE TABLE erasures (
    tenant  INTEGER NOT NULL,
    receipt BLOB    NOT NULL,           -- its FactId
    asked   INTEGER NOT NULL,
    stored  INTEGER NOT NULL,           -- when all of it was gone from the store
    log_seq INTEGER NOT NULL,           -- records of the log up to here may hold it
    log     INTEGER,                    -- when the last of them was gone
    PRIMARY KEY (tenant, receipt)
) STRICT, WITHOUT ROWID;
CREATE INDEX erasures_in_log ON erasures (log_seq) WHERE log IS NULL;

-- KV keys whose value may name somebody erased. One is done once a write of a version above `after` was acknowledged.
CREATE TABLE erasure_keys (
    tenant  INTEGER NOT NULL,
    receipt BLOB    NOT NULL,
    kind    INTEGER NOT NULL,           -- as in `outbox`
    subject BLOB    NOT NULL,
    after   INTEGER NOT NULL,           -- version counter at the erasure
    written INTEGER,
    PRIMARY KEY (tenant, receipt, kind, subject)
) STRICT, WITHOUT ROWID;
CREATE INDEX erasure_keys_open ON erasure_keys (tenant, kind, subject) WHERE written IS NULL;

-- Of an erased visitor all cuts are found.
CREATE INDEX cuts_by_visitor ON cuts (visitor);
