-- Facts are durable in a log of their own (log.db) before they are folded; what is kept of them here is what they add
-- up to, and which they were.
ALTER TABLE meta ADD COLUMN folded INTEGER NOT NULL DEFAULT 0;     -- newest log record that is in this store

-- Parts of a profile that most facts do not touch.
ALTER TABLE visitors ADD COLUMN actions INTEGER NOT NULL DEFAULT 0;     -- how many actions its buckets hold
ALTER TABLE visitors ADD COLUMN segments BLOB NOT NULL DEFAULT x'';     -- packed

-- [visitor][bucket] -> packed actions. A full day is cut into hours, a full hour into minutes.
-- A table by an integer key: its inner pages hold hundreds of keys, where those of WITHOUT ROWID would hold four bodies.
CREATE TABLE actions (
    place   INTEGER PRIMARY KEY,        -- row in `visitors` << 32 | first minute, since 2019
    minutes INTEGER NOT NULL,           -- 1, 60 or 1440
    count   INTEGER NOT NULL,
    body    BLOB    NOT NULL
) STRICT;

-- FactIds counted: their first eight bytes, by visitor and the UTC day of their receipt. They outlive the log, and are
-- forgotten after limits::FACT_ID_KEEP_MS.
CREATE TABLE fact_ids (
    visitor INTEGER NOT NULL,           -- row in `visitors`
    day     INTEGER NOT NULL,           -- since 2019
    part    INTEGER NOT NULL,
    ids     BLOB    NOT NULL,
    PRIMARY KEY (visitor, day, part)
) STRICT, WITHOUT ROWID;

-- Files imported, and how far.
CREATE TABLE imports (
    file    TEXT    NOT NULL PRIMARY KEY,   -- hash of its path, length and time of change
    lines   INTEGER NOT NULL,               -- done, the first line of a CSV among them
    changed INTEGER NOT NULL,
    ended   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Names of attributes in the order of their first use, and what kind of value each has. Append-only.
CREATE TABLE attribute_names (
    tenant INTEGER NOT NULL,
    token  INTEGER NOT NULL,
    name   TEXT    NOT NULL,
    kind   INTEGER NOT NULL,
    PRIMARY KEY (tenant, token),
    UNIQUE (tenant, name)
) STRICT, WITHOUT ROWID;
ALTER TABLE visitors ADD COLUMN attributes BLOB NOT NULL DEFAULT x'';   -- packed
