-- Models trained, by tenant: the newest is the one to publish. Nothing in them names anybody.
CREATE TABLE models (
    tenant  INTEGER NOT NULL,
    version INTEGER NOT NULL,           -- 1 and on, by tenant
    at      INTEGER NOT NULL,           -- when it was trained
    bytes   BLOB    NOT NULL,           -- as the edge reads it
    report  TEXT    NOT NULL,           -- how good it is, as JSON
    PRIMARY KEY (tenant, version)
) STRICT, WITHOUT ROWID;

-- What purchases were worth and when: labels to learn from.
CREATE TABLE purchases (
    place INTEGER PRIMARY KEY,          -- row in `visitors` << 32 | minute, since 2019
    count INTEGER NOT NULL,
    value INTEGER NOT NULL              -- micros, of all of them
) STRICT;
