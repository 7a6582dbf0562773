-- Of one source each weight has a row: what was cancelled does not come back with less sure evidence of its source.
CREATE TABLE evidence_by_weight (
    tenant    INTEGER NOT NULL,
    visitor   BLOB    NOT NULL,
    kind      INTEGER NOT NULL,
    hash      BLOB    NOT NULL,         -- canonical, see `alternates`
    source    INTEGER NOT NULL,         -- 1: proven login, 2: named by the page without proof, 3 to 6: see `Source`
    weight    INTEGER NOT NULL,         -- per mille, 0 to 1000
    first     INTEGER NOT NULL,
    last      INTEGER NOT NULL,
    cancelled INTEGER,                  -- 9223372036854775807: for ever
    flag      INTEGER,                  -- 1: second unique id, 2: joins two people, 3: crowded; none: nothing wrong
    PRIMARY KEY (tenant, visitor, kind, hash, source, weight)
) STRICT, WITHOUT ROWID;
INSERT INTO evidence_by_weight SELECT tenant, visitor, kind, hash, source, weight, first, last, cancelled, flag FROM evidence;
DROP TABLE evidence;
ALTER TABLE evidence_by_weight RENAME TO evidence;
CREATE INDEX evidence_of_id ON evidence (tenant, kind, hash, last DESC, visitor, cancelled) WHERE weight > 0;
CREATE INDEX claims_of_id ON evidence (tenant, kind, hash, last DESC, visitor) WHERE weight = 0;
