-- How a tenant's traffic is steered: made anew each minute, published where it changed.
CREATE TABLE steering (
    tenant INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,            -- when it was made
    value  TEXT    NOT NULL             -- the shares by experiment and the paces by campaign, as JSON
) STRICT;
