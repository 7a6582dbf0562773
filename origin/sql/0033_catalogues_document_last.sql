-- A document may take megabytes, and SQLite walks over it to whatever column lies behind it: it is the last one now.
DROP INDEX catalogues_handed;
ALTER TABLE catalogues RENAME TO catalogues_before;
CREATE TABLE catalogues (
    tenant      INTEGER NOT NULL,
    version     INTEGER NOT NULL,       -- from 1 on
    replaced    INTEGER,                -- when it was current last; none: it is, or it never was
    handed      INTEGER,                -- outbox entry that its value was handed out under last
    published   INTEGER,                -- when the KV acknowledged its value; none: it may not be there
    applied     INTEGER NOT NULL,
    by          TEXT    NOT NULL,       -- `cli`, or the name of the token
    sha256      BLOB    NOT NULL,       -- of the document
    limited     TEXT    NOT NULL DEFAULT '[]', -- its campaigns with only so many recipients, as JSON
    budgets     TEXT    NOT NULL DEFAULT '[]', -- the part of it that billing needs, as JSON
    experiments TEXT    NOT NULL,       -- the part of it that the fold needs, as JSON
    document    TEXT    NOT NULL,       -- JSON, every row with its code
    PRIMARY KEY (tenant, version)
) STRICT, WITHOUT ROWID;
INSERT INTO catalogues (tenant, version, replaced, handed, published, applied, by, sha256, limited, budgets, experiments, document)
    SELECT tenant, version, replaced, handed, published, applied, by, sha256, limited, budgets, experiments, document
    FROM catalogues_before;
DROP TABLE catalogues_before;
CREATE INDEX catalogues_handed ON catalogues (handed) WHERE handed IS NOT NULL AND published IS NULL;
