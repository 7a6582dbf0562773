-- Keys that a run of `verify` has read back from the KV, until the run has looked at what was there.
CREATE TABLE verifications (
    entry        INTEGER PRIMARY KEY,   -- a number never given before: each look has its own
    tenant       INTEGER NOT NULL,
    kind         INTEGER NOT NULL,      -- as in `outbox`
    subject      BLOB    NOT NULL,
    due          INTEGER NOT NULL,      -- not read before
    leased_until INTEGER NOT NULL DEFAULT 0,
    asked        INTEGER,               -- when an edge was first asked to read it
    answered     INTEGER,
    sha256       BLOB,                  -- of what was read; none: nothing was there
    looks        INTEGER NOT NULL,      -- how often it was looked at before
    expected     BLOB                   -- what the look before expected, empty for nothing; none: it could not tell
) STRICT;
CREATE INDEX verifications_open ON verifications (due) WHERE answered IS NULL;
CREATE INDEX verifications_answered ON verifications (entry) WHERE answered IS NOT NULL;

-- Under which version the pointer, the model and the steering of a tenant were handed out last.
CREATE TABLE standing (
    tenant    INTEGER NOT NULL,
    kind      INTEGER NOT NULL,         -- as in `outbox`
    published INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind)
) STRICT, WITHOUT ROWID;

-- When a key was read back and nobody erased was in it.
ALTER TABLE erasure_keys ADD COLUMN verified INTEGER;
CREATE INDEX erasure_keys_unverified ON erasure_keys (tenant, kind, subject) WHERE verified IS NULL;
