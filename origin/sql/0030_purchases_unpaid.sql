-- Purchases that no click pays for yet: it may come later than they.
CREATE TABLE purchases_unpaid (
    visitor  INTEGER NOT NULL,          -- row in `visitors`
    id       INTEGER NOT NULL,          -- first eight bytes of the FactId, as a signed number
    minute   INTEGER NOT NULL,
    received INTEGER NOT NULL,
    value    INTEGER NOT NULL,
    until    INTEGER NOT NULL,          -- from when on nobody pays for it
    PRIMARY KEY (visitor, id)
) STRICT, WITHOUT ROWID;
