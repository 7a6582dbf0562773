-- Experiments: what visitors saw and did, what that comes to for each person, and the sums over people.

-- Of each experiment the arm that a visitor saw first.
CREATE TABLE exposures (
    visitor    INTEGER NOT NULL,        -- row in `visitors`
    experiment INTEGER NOT NULL,        -- its code
    arm        INTEGER NOT NULL,        -- its code
    at         INTEGER NOT NULL,        -- receipt of the first exposure
    mixed      INTEGER NOT NULL,        -- 1: another arm was seen as well
    PRIMARY KEY (visitor, experiment)
) STRICT, WITHOUT ROWID;

-- Events that an experiment counts as conversions, one by one: people who merge or part are counted anew from them.
CREATE TABLE conversions (
    visitor  INTEGER NOT NULL,          -- row in `visitors`
    received INTEGER NOT NULL,
    id       INTEGER NOT NULL,          -- first eight bytes of the FactId
    name     TEXT    NOT NULL,          -- of the event or the verb
    value    INTEGER NOT NULL,          -- micros
    PRIMARY KEY (visitor, received, id)
) STRICT, WITHOUT ROWID;

-- What a person adds to the sums. A person has a row for each experiment that any of its visitors was exposed to.
CREATE TABLE experiment_people (
    person     INTEGER NOT NULL,
    experiment INTEGER NOT NULL,
    tenant     INTEGER NOT NULL,
    arm        INTEGER NOT NULL,        -- -1: mixed, no conversions are counted
    exposed    INTEGER NOT NULL,        -- first exposure
    converted  INTEGER,                 -- first conversion from then on
    hours      BLOB    NOT NULL,        -- packed: hour, conversions, revenue of each hour with conversions
    PRIMARY KEY (person, experiment)
) STRICT, WITHOUT ROWID;

-- Sums by hours since 2019, people counted once.
CREATE TABLE experiment_hours (
    tenant             INTEGER NOT NULL,
    experiment         INTEGER NOT NULL,
    arm                INTEGER NOT NULL, -- -1: mixed
    hour               INTEGER NOT NULL,
    exposed            INTEGER NOT NULL, -- people exposed first in this hour: its cohort
    cohort_converted   INTEGER NOT NULL, -- of them those who converted, whenever
    cohort_conversions INTEGER NOT NULL,
    cohort_revenue     INTEGER NOT NULL, -- micros
    converted          INTEGER NOT NULL, -- people whose first conversion was in this hour
    conversions        INTEGER NOT NULL, -- in this hour
    revenue            INTEGER NOT NULL, -- micros
    PRIMARY KEY (tenant, experiment, arm, hour)
) STRICT, WITHOUT ROWID;

-- How long people took to convert, over all arms.
CREATE TABLE experiment_delays (
    tenant     INTEGER NOT NULL,
    experiment INTEGER NOT NULL,
    hour       INTEGER NOT NULL,        -- of the first exposure
    delay      INTEGER NOT NULL,        -- whole hours from there to the first conversion; 720 for all above
    people     INTEGER NOT NULL,
    PRIMARY KEY (tenant, experiment, hour, delay)
) STRICT, WITHOUT ROWID;
