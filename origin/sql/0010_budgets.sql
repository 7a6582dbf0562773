-- Budgets: what campaigns spend, and how that was counted.

ALTER TABLE catalogues ADD COLUMN budgets TEXT NOT NULL DEFAULT '[]'; -- the part of the document that billing needs, as JSON

CREATE TABLE spend (
    tenant   INTEGER NOT NULL,
    campaign INTEGER NOT NULL,          -- its code
    day      INTEGER NOT NULL,          -- days since 1970 where the campaign's days begin; -1: all of them
    nanos    INTEGER NOT NULL,          -- billionths of the currency
    PRIMARY KEY (tenant, campaign, day)
) STRICT, WITHOUT ROWID;

-- Actions of nobody that were counted: they belong to no visitor that would remember them.
CREATE TABLE nobodys_facts (
    tenant INTEGER NOT NULL,
    day    INTEGER NOT NULL,            -- of its receipt
    id     INTEGER NOT NULL,            -- first eight bytes of the FactId
    PRIMARY KEY (tenant, day, id)
) STRICT, WITHOUT ROWID;

-- What is of no visitor and no id goes first.
CREATE INDEX outbox_first ON outbox (due, kind) WHERE kind > 255 AND due IS NOT NULL;

-- Beside the shares there are paces now.
UPDATE steering SET value = '{"shares":' || value || '}';
