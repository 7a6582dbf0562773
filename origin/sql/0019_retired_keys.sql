-- Keys of alternate ids that are no longer read, and whose lookups `trim` has had deleted from the KV.
CREATE TABLE retired_keys (
    tenant INTEGER NOT NULL,
    kind   INTEGER NOT NULL,            -- of the ids
    key    INTEGER NOT NULL,            -- the first byte of their hashes
    PRIMARY KEY (tenant, kind, key)
) STRICT, WITHOUT ROWID;
