-- Catalogues: every version that was ever applied, which one is current, and the codes that were ever given.

CREATE TABLE catalogues (
    tenant    INTEGER NOT NULL,
    version   INTEGER NOT NULL,         -- from 1 on
    document  TEXT    NOT NULL,         -- JSON, every row with its code
    sha256    BLOB    NOT NULL,         -- of the document
    experiments TEXT  NOT NULL,         -- the part of it that the fold needs, as JSON
    applied   INTEGER NOT NULL,
    by        TEXT    NOT NULL,         -- `cli`, or the name of the token
    replaced  INTEGER,                  -- when it was current last; none: it is, or it never was
    handed    INTEGER,                  -- outbox entry that its value was handed out under last
    published INTEGER,                  -- when the KV acknowledged its value; none: it may not be there
    PRIMARY KEY (tenant, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX catalogues_handed ON catalogues (handed) WHERE handed IS NOT NULL AND published IS NULL;

CREATE TABLE catalogue_current (
    tenant  INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    since   INTEGER NOT NULL
) STRICT;
CREATE INDEX catalogue_current_by_since ON catalogue_current (since);

-- Codes are for ever: of an id, and of a sort.
CREATE TABLE catalogue_codes (
    tenant INTEGER NOT NULL,
    sort   TEXT    NOT NULL,            -- `advertiser`, `campaign`, `ad_group`, `ad`, `experiment`
    id     TEXT    NOT NULL,
    code   INTEGER NOT NULL,
    PRIMARY KEY (tenant, sort, id),
    UNIQUE (tenant, sort, code)
) STRICT, WITHOUT ROWID;
