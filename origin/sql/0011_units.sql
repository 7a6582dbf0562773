-- Limited offers: which visitor got which unit, and which units are somebody's.

ALTER TABLE catalogues ADD COLUMN limited TEXT NOT NULL DEFAULT '[]'; -- its campaigns with only so many recipients, as JSON

-- Of each campaign the unit that a visitor got first.
CREATE TABLE units (
    visitor  INTEGER NOT NULL,          -- row in `visitors`
    campaign INTEGER NOT NULL,          -- its code
    number   INTEGER NOT NULL,
    at       INTEGER NOT NULL,          -- receipt
    PRIMARY KEY (visitor, campaign)
) STRICT, WITHOUT ROWID;

-- Units that somebody got, who may be erased by now.
CREATE TABLE units_given (
    tenant   INTEGER NOT NULL,
    campaign INTEGER NOT NULL,          -- its code
    number   INTEGER NOT NULL,
    PRIMARY KEY (tenant, campaign, number)
) STRICT, WITHOUT ROWID;
