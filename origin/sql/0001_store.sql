-- The origin's store, first form. Ids are 16-byte blobs; times are milliseconds since the Unix epoch;
-- a tenant is its number in `tenants`.

-- One row: counters that only grow, and the restore epoch.
CREATE TABLE meta (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    restore_epoch   INTEGER NOT NULL,   -- how often this store came back from a backup
    version_counter INTEGER NOT NULL,   -- counter part of the versions issued so far
    epoch_counter   INTEGER NOT NULL    -- membership epochs issued so far
) STRICT;
INSERT INTO meta VALUES (1, 0, 0, 0);

-- Numbers of tenants; append-only.
CREATE TABLE tenants (
    tenant INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE
) STRICT;

-- Facts counted, each once: the deduplication and the log. Forgotten after limits::FACT_ID_KEEP_MS.
CREATE TABLE facts (
    tenant   INTEGER NOT NULL,
    id       BLOB    NOT NULL,
    received INTEGER NOT NULL,          -- the edge's receive time
    body     BLOB    NOT NULL,          -- the fact as it came over the wire
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX facts_by_age ON facts (received);

-- One browser and what its own facts add up to.
CREATE TABLE visitors (
    row       INTEGER PRIMARY KEY,
    tenant    INTEGER NOT NULL,
    visitor   BLOB    NOT NULL,
    last_seen INTEGER NOT NULL,         -- receive time of its newest fact
    version   INTEGER NOT NULL,         -- version counter at its last change
    restore   INTEGER NOT NULL,         -- restore epoch of that version
    published INTEGER NOT NULL,         -- version counter of its snapshot handed out last; 0: none yet
    withdrawn INTEGER,                  -- when it withdrew its permission
    person    INTEGER NOT NULL,         -- its row in `people`
    profile   BLOB    NOT NULL,
    UNIQUE (tenant, visitor)
) STRICT;
CREATE INDEX visitors_by_person ON visitors (person, last_seen DESC);

-- People. A visitor that was never linked is a person of one, so that its membership has an epoch too.
-- A row stays while a visitor points to it.
CREATE TABLE people (
    person       INTEGER PRIMARY KEY,
    tenant       INTEGER NOT NULL,
    master       BLOB    NOT NULL,      -- the oldest visitor
    devices      INTEGER NOT NULL,      -- how many visitors point here
    epoch        INTEGER NOT NULL,      -- of its membership
    changed      INTEGER NOT NULL,      -- version counter at the last change of a member or of the membership
    siblings_due INTEGER                -- when snapshots older than `changed` are put in the outbox
) STRICT;
CREATE INDEX people_by_due ON people (siblings_due) WHERE siblings_due IS NOT NULL;

-- Visitors that left a person. The newest limits::CUTS of each are kept.
CREATE TABLE cuts (
    person  INTEGER NOT NULL,
    visitor BLOB    NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (person, visitor)
) STRICT, WITHOUT ROWID;

-- What ties a visitor to an alternate id. Never rewritten but for the times of its first and last sight;
-- `cancelled` ends it until newer evidence comes.
CREATE TABLE evidence (
    tenant    INTEGER NOT NULL,
    visitor   BLOB    NOT NULL,
    kind      INTEGER NOT NULL,
    hash      BLOB    NOT NULL,         -- canonical, see `alternates`
    source    INTEGER NOT NULL,         -- 1: proven login, 2: named by the page without proof
    weight    INTEGER NOT NULL,         -- per mille, 1 to 1000
    first     INTEGER NOT NULL,
    last      INTEGER NOT NULL,
    cancelled INTEGER,                  -- 9223372036854775807: for ever
    flag      INTEGER,                  -- 1: second unique id, 2: joins two people; none: nothing wrong
    PRIMARY KEY (tenant, visitor, kind, hash, source)
) STRICT, WITHOUT ROWID;
CREATE INDEX evidence_by_id ON evidence (tenant, kind, hash, last DESC, visitor);

-- Other hashes of an alternate id, from before or after a key rotation, and the one that stands for all.
CREATE TABLE alternates (
    tenant    INTEGER NOT NULL,
    kind      INTEGER NOT NULL,
    hash      BLOB    NOT NULL,
    canonical BLOB    NOT NULL,
    PRIMARY KEY (tenant, kind, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX alternates_by_canonical ON alternates (tenant, kind, canonical);

-- Alternate id -> the visitors last seen with it, up to limits::LOOKUP_VISITORS, the newest first.
CREATE TABLE lookups (
    tenant   INTEGER NOT NULL,
    kind     INTEGER NOT NULL,
    hash     BLOB    NOT NULL,          -- canonical
    visitors BLOB    NOT NULL,          -- 16 bytes each
    since    INTEGER NOT NULL,          -- when its first visitor became the first
    version  INTEGER NOT NULL,          -- version counter at its last change
    PRIMARY KEY (tenant, kind, hash)
) STRICT, WITHOUT ROWID;

-- KV keys whose value must be written. One row a key; a settled row stays a second, so that the key's
-- rate limit survives a restart.
CREATE TABLE outbox (
    row          INTEGER PRIMARY KEY,
    tenant       INTEGER NOT NULL,
    kind         INTEGER NOT NULL,      -- 0: snapshot, else the kind of the lookup
    subject      BLOB    NOT NULL,      -- visitor, or hash as it is in the key
    changed      INTEGER NOT NULL,      -- version counter at the newest change
    since        INTEGER NOT NULL,      -- when the oldest change not yet written came
    due          INTEGER,               -- none: settled
    lease        INTEGER,               -- id it was handed out under
    lease_change INTEGER NOT NULL,      -- `changed` at that moment
    leased_until INTEGER NOT NULL,
    handed       INTEGER NOT NULL,      -- when it was handed out last
    UNIQUE (tenant, kind, subject)
) STRICT;
CREATE INDEX outbox_by_due ON outbox (due, kind) WHERE due IS NOT NULL;
CREATE INDEX outbox_by_lease ON outbox (lease) WHERE lease IS NOT NULL;
CREATE INDEX outbox_settled ON outbox (handed) WHERE due IS NULL;

-- Bearer tokens of the admin side, hashed.
CREATE TABLE tokens (
    token   INTEGER PRIMARY KEY,
    hash    BLOB NOT NULL UNIQUE,       -- SHA-256 of the token's text
    role    TEXT NOT NULL,
    name    TEXT NOT NULL,
    created INTEGER NOT NULL,
    revoked INTEGER
) STRICT;
