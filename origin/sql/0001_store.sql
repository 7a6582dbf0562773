-- The origin's store. Ids are 16-byte blobs. Times are milliseconds since the Unix epoch. A column `tenant` is a number
-- in `tenants`. A day, hour or minute "since 2019" counts from 2019-01-01T00:00Z. A hash is canonical where its
-- column says so (see `alternates`).

-- Identity, restore epoch and counters of the store: one row. The counters only grow.
CREATE TABLE meta (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    identity        BLOB    NOT NULL,   -- random; the store's log and journal of erasures have the same identity
    restore_epoch   INTEGER NOT NULL,   -- number of times that this store came back from a backup
    version_counter INTEGER NOT NULL,   -- counter part of the newest issued version
    epoch_counter   INTEGER NOT NULL,   -- newest issued membership epoch
    folded          INTEGER NOT NULL DEFAULT 0, -- newest log record that is folded into this store
    index_epoch     INTEGER NOT NULL DEFAULT 0, -- epoch of the audience index; an index or index file of another epoch
                                                -- is rebuilt
    event_names     INTEGER NOT NULL DEFAULT 0, -- revision of the table `event_names`
    index_erased    INTEGER NOT NULL DEFAULT 0  -- newest number in `people_changed` at the last erasure: an older index
                                                -- file may hold erased visitors and is rewritten
) STRICT;
INSERT INTO meta (id, identity, restore_epoch, version_counter, epoch_counter) VALUES (1, randomblob(16), 0, 0, 0);

-- Numbers of tenants. A row is never changed or deleted.
CREATE TABLE tenants (
    tenant INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE
) STRICT;

-- Visitors: one row per browser, with the join of its own facts.
CREATE TABLE visitors (
    row        INTEGER PRIMARY KEY,
    tenant     INTEGER NOT NULL,
    visitor    BLOB    NOT NULL,
    last_seen  INTEGER NOT NULL,        -- receipt of its newest fact
    version    INTEGER NOT NULL,        -- version counter at its last change
    restore    INTEGER NOT NULL,        -- restore epoch of that version
    published  INTEGER NOT NULL,        -- version counter of the snapshot that was handed out last; 0: none yet
    withdrawn  INTEGER,                 -- time of its withdrawal; NULL: it has permission
    person     INTEGER NOT NULL,        -- row in `people`
    profile    BLOB    NOT NULL,        -- packed, without the parts in columns of their own, which few facts change
    actions    INTEGER NOT NULL DEFAULT 0,      -- number of actions in its buckets
    segments   BLOB    NOT NULL DEFAULT x'',    -- packed
    attributes BLOB    NOT NULL DEFAULT x'',    -- packed
    weight     INTEGER NOT NULL DEFAULT 1000,   -- weight of the link with its person, 0 to 1000 per mille: the weakest
                                                -- connection on the surest path to the holder of the person's unique
                                                -- id, or to the master
    events     BLOB    NOT NULL DEFAULT x'',    -- packed, by name
    best       INTEGER,                 -- best send time in the snapshot that was handed out last: 256 times the hour,
                                        -- plus the confidence. The value of a version stays the same when the tenant's
                                        -- activity histogram changes
    truncated  INTEGER NOT NULL DEFAULT 0,      -- 1: the snapshot that was handed out last is truncated
    UNIQUE (tenant, visitor)
) STRICT;
-- Visitors whose snapshots are written again when a catalogue needs data that a truncated snapshot may lack.
CREATE INDEX visitors_truncated ON visitors (tenant) WHERE truncated;
CREATE INDEX visitors_by_person ON visitors (person, last_seen DESC);
-- Person of each visitor. An entry has about forty bytes; the visitor's row has hundreds.
CREATE INDEX visitors_by_id ON visitors (tenant, visitor, person, weight);

-- People: one row per person. A visitor without a link is a person of one, so that its membership has an epoch too.
-- A row stays while a visitor points to it.
CREATE TABLE people (
    person       INTEGER PRIMARY KEY,
    tenant       INTEGER NOT NULL,
    master       BLOB    NOT NULL,      -- the oldest visitor
    devices      INTEGER NOT NULL,      -- number of visitors that point to this row
    epoch        INTEGER NOT NULL,      -- epoch of its membership
    changed      INTEGER NOT NULL,      -- version counter at the last change of a member or of the membership
    siblings_due INTEGER,               -- time at which snapshots older than `changed` enter the outbox; NULL: never
    random       BLOB,                  -- random bytes, drawn once; the person's buckets derive from them
    weight       INTEGER NOT NULL DEFAULT 1000  -- weight of the master's link, 0 to 1000 per mille
) STRICT;
CREATE INDEX people_by_due ON people (siblings_due) WHERE siblings_due IS NOT NULL;
-- People of a tenant in the order of their masters.
CREATE INDEX people_by_master ON people (tenant, master);

-- Cuts: visitors that left a person. A person has at most limits::CUTS rows, the newest ones.
CREATE TABLE cuts (
    person  INTEGER NOT NULL,
    visitor BLOB    NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (person, visitor)
) STRICT, WITHOUT ROWID;
-- Cuts of one visitor: an erasure needs all of them.
CREATE INDEX cuts_by_visitor ON cuts (visitor);

-- Other hashes of an alternate id under previous or later keys of a key rotation, each with the canonical hash that the
-- other tables use for the id.
CREATE TABLE alternates (
    tenant    INTEGER NOT NULL,
    kind      INTEGER NOT NULL,
    hash      BLOB    NOT NULL,
    canonical BLOB    NOT NULL,
    PRIMARY KEY (tenant, kind, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX alternates_by_canonical ON alternates (tenant, kind, canonical);

-- Lookups: the visitors last seen with an alternate id, at most limits::LOOKUP_VISITORS, the newest first.
CREATE TABLE lookups (
    tenant   INTEGER NOT NULL,
    kind     INTEGER NOT NULL,
    hash     BLOB    NOT NULL,          -- canonical
    visitors BLOB    NOT NULL,          -- 16 bytes each
    since    INTEGER NOT NULL,          -- time at which its first visitor became the first
    version  INTEGER NOT NULL,          -- version counter at its last change
    PRIMARY KEY (tenant, kind, hash)
) STRICT, WITHOUT ROWID;

-- Outbox: the KV keys whose value must be written, one row per key. A settled row stays for a second, so that the key's
-- rate limit survives a restart.
CREATE TABLE outbox (
    row          INTEGER PRIMARY KEY,
    tenant       INTEGER NOT NULL,
    kind         INTEGER NOT NULL,      -- 0: snapshot; 1 to 255: lookup of that kind of alternate id; above 255: key of
                                        -- neither a visitor nor an id
    subject      BLOB    NOT NULL,      -- visitor, or the hash in the key
    changed      INTEGER NOT NULL,      -- version counter of the newest change
    due          INTEGER,               -- time from which the key may be handed out; NULL: settled
    lease        INTEGER,               -- entry under which it was handed out last; NULL: none
    lease_change INTEGER NOT NULL,      -- `changed` when it was handed out
    leased_until INTEGER NOT NULL,      -- end of the lease
    handed       INTEGER NOT NULL,      -- time at which it was handed out last
    late         INTEGER NOT NULL DEFAULT 0,    -- end of the time in which a late write may arrive; the key is written
                                                -- again after it
    priority     INTEGER NOT NULL DEFAULT 2,    -- 0: keys that every request of a tenant reads, 1: keys that may name a
                                                -- visitor that left or was erased, 2: news, 3: bulk. The tenants of one
                                                -- priority take turns
    UNIQUE (tenant, kind, subject)
) STRICT;
CREATE INDEX outbox_by_lease ON outbox (lease) WHERE lease IS NOT NULL;
CREATE INDEX outbox_settled ON outbox (handed) WHERE due IS NULL;
CREATE INDEX outbox_by_turn ON outbox (priority, tenant, due, kind) WHERE due IS NOT NULL;

-- Bearer tokens of the admin side, as hashes.
CREATE TABLE tokens (
    token   INTEGER PRIMARY KEY,
    hash    BLOB NOT NULL UNIQUE,       -- SHA-256 of the token's text
    role    TEXT NOT NULL,
    name    TEXT NOT NULL,
    created INTEGER NOT NULL,
    revoked INTEGER,                    -- time of the revocation; NULL: valid
    tenant  TEXT,                       -- name of its tenant; NULL: all tenants
    expires INTEGER,                    -- time of the expiry; NULL: never
    used    INTEGER                     -- time of the last use, written at most once an hour; NULL: never used
) STRICT;

-- Packed actions of a visitor in buckets of a day. A full day is split into hours, and a full hour into minutes.
-- The key is an integer: an inner page holds hundreds of keys. With WITHOUT ROWID it would hold four bodies.
CREATE TABLE actions (
    place   INTEGER PRIMARY KEY,        -- row in `visitors` << 32 | first minute, since 2019
    minutes INTEGER NOT NULL,           -- length of the bucket: 1, 60 or 1440
    count   INTEGER NOT NULL,           -- number of actions in `body`
    body    BLOB    NOT NULL
) STRICT;

-- FactIds that were counted: their first eight bytes, by visitor and UTC day of receipt. They outlive the log, because
-- a fact may arrive again, and are deleted after limits::FACT_ID_KEEP_MS.
CREATE TABLE fact_ids (
    visitor INTEGER NOT NULL,           -- row in `visitors`
    day     INTEGER NOT NULL,           -- since 2019
    part    INTEGER NOT NULL,           -- number of the row within the day
    ids     BLOB    NOT NULL,           -- packed
    PRIMARY KEY (visitor, day, part)
) STRICT, WITHOUT ROWID;

-- Imported files, each with the progress of its import.
CREATE TABLE imports (
    file    TEXT    NOT NULL PRIMARY KEY,   -- hash of the file's path, length and time of change
    lines   INTEGER NOT NULL,               -- number of imported lines, with the first line of a CSV
    changed INTEGER NOT NULL,               -- time of the first entry
    ended   INTEGER NOT NULL                -- twice the number of bad lines, plus 1 if the import ended
) STRICT, WITHOUT ROWID;

-- Names of attributes with the kind of their values. The tokens of a tenant have no gap, and no row is deleted: a token
-- whose name is taken back gets another name and kind, and stored attributes keep their tokens.
CREATE TABLE attribute_names (
    tenant INTEGER NOT NULL,
    token  INTEGER NOT NULL,            -- from 0 on, in the order of first use
    name   TEXT    NOT NULL,
    kind   INTEGER NOT NULL,
    PRIMARY KEY (tenant, token),
    UNIQUE (tenant, name)
) STRICT, WITHOUT ROWID;

-- Number of new names that pages of a visitor introduced on a day. It bounds the names that browsers may use up.
CREATE TABLE names_brought (
    tenant  INTEGER NOT NULL,
    what    INTEGER NOT NULL,           -- 0: attributes, 1: events
    day     INTEGER NOT NULL,           -- days since 1970
    visitor BLOB    NOT NULL,
    names   INTEGER NOT NULL,           -- number of names
    PRIMARY KEY (tenant, what, day, visitor)
) STRICT, WITHOUT ROWID;

-- Names of events that audiences count. Each name has columns in the audience index.
CREATE TABLE event_names (
    tenant INTEGER NOT NULL,
    name   TEXT    NOT NULL,
    source INTEGER NOT NULL,            -- 0: from a page, 1: from the admin side or a file, 2: declared or in use
    since  INTEGER NOT NULL,            -- time of the first use
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

-- Cancellations of evidence by the admin side. A row may exist before its evidence arrives, because
-- `evidence.cancelled` derives from it.
CREATE TABLE cancellations (
    tenant  INTEGER NOT NULL,
    visitor BLOB    NOT NULL,
    kind    INTEGER NOT NULL,
    hash    BLOB    NOT NULL,           -- canonical, see `alternates`
    at      INTEGER NOT NULL,           -- time of the newest cancellation
    PRIMARY KEY (tenant, visitor, kind, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX cancellations_by_id ON cancellations (tenant, kind, hash);

-- Erased visitors. A row is permanent, and later facts of the visitor are refused. Its row in `visitors` stays as an
-- empty tombstone.
CREATE TABLE erased (
    tenant  INTEGER NOT NULL,
    visitor BLOB    NOT NULL,
    at      INTEGER NOT NULL,           -- receipt of the erasure
    receipt BLOB    NOT NULL,
    PRIMARY KEY (tenant, visitor)
) STRICT, WITHOUT ROWID;

-- Erased alternate ids, one row per hash. A visitor that was seen with the id up to `at` is erased too.
CREATE TABLE erased_ids (
    tenant  INTEGER NOT NULL,
    kind    INTEGER NOT NULL,
    hash    BLOB    NOT NULL,
    at      INTEGER NOT NULL,           -- time of the newest erasure
    receipt BLOB    NOT NULL,
    PRIMARY KEY (tenant, kind, hash)
) STRICT, WITHOUT ROWID;

-- Erasures: one row per request, named by its receipt.
CREATE TABLE erasures (
    tenant  INTEGER NOT NULL,
    receipt BLOB    NOT NULL,           -- FactId of the request
    requested INTEGER NOT NULL,         -- time of the request
    stored  INTEGER NOT NULL,           -- time at which the store held nothing of it any more
    log_seq INTEGER NOT NULL,           -- newest log record that may hold facts of it; 0: none
    log     INTEGER,                    -- time at which these records were deleted; NULL: they are not yet
    PRIMARY KEY (tenant, receipt)
) STRICT, WITHOUT ROWID;
CREATE INDEX erasures_in_log ON erasures (log_seq) WHERE log IS NULL;

-- KV keys whose value may name an erased visitor. A key counts as written when the KV has acknowledged a version above
-- `after`.
CREATE TABLE erasure_keys (
    tenant   INTEGER NOT NULL,
    receipt  BLOB    NOT NULL,
    kind     INTEGER NOT NULL,          -- as in `outbox`
    subject  BLOB    NOT NULL,
    after    INTEGER NOT NULL,          -- version counter at the erasure
    written  INTEGER,                   -- time of the acknowledgement; NULL: not written yet
    verified INTEGER,                   -- time at which the key was read back without an erased visitor; NULL: not yet
    PRIMARY KEY (tenant, receipt, kind, subject)
) STRICT, WITHOUT ROWID;
CREATE INDEX erasure_keys_open ON erasure_keys (tenant, kind, subject) WHERE written IS NULL;
CREATE INDEX erasure_keys_unverified ON erasure_keys (tenant, kind, subject) WHERE verified IS NULL;

-- Trained models. The newest model of a tenant is published. A model names no visitor.
CREATE TABLE models (
    tenant  INTEGER NOT NULL,
    version INTEGER NOT NULL,           -- from 1 on, per tenant
    at      INTEGER NOT NULL,           -- time of the training
    bytes   BLOB    NOT NULL,           -- the model in the edge's format
    report  TEXT    NOT NULL,           -- quality of the model, as JSON
    PRIMARY KEY (tenant, version)
) STRICT, WITHOUT ROWID;

-- Values of purchases by visitor and minute. They are the labels of the training.
CREATE TABLE purchases (
    place INTEGER PRIMARY KEY,          -- row in `visitors` << 32 | minute, since 2019
    count INTEGER NOT NULL,             -- number of purchases
    value INTEGER NOT NULL              -- their sum, in micros
) STRICT;

-- Exposures: the arm that a visitor saw first in each experiment.
CREATE TABLE exposures (
    visitor    INTEGER NOT NULL,        -- row in `visitors`
    experiment INTEGER NOT NULL,        -- its code
    arm        INTEGER NOT NULL,        -- its code
    at         INTEGER NOT NULL,        -- receipt of the first exposure
    mixed      INTEGER NOT NULL,        -- 1: another arm was seen as well
    PRIMARY KEY (visitor, experiment)
) STRICT, WITHOUT ROWID;

-- Conversions: single events that an experiment counts. The results of people that merge or split are computed again
-- from these rows.
CREATE TABLE conversions (
    visitor  INTEGER NOT NULL,          -- row in `visitors`
    received INTEGER NOT NULL,
    id       INTEGER NOT NULL,          -- first eight bytes of the FactId
    name     TEXT    NOT NULL,          -- name of the event or of the action type
    value    INTEGER NOT NULL,          -- micros
    PRIMARY KEY (visitor, received, id)
) STRICT, WITHOUT ROWID;

-- Results of a person: its part in the sums of `experiment_hours`. A person has a row for each experiment that any of
-- its visitors was exposed to.
CREATE TABLE experiment_people (
    person     INTEGER NOT NULL,
    experiment INTEGER NOT NULL,
    tenant     INTEGER NOT NULL,
    arm        INTEGER NOT NULL,        -- code; -1 - the first arm's code: mixed, and no conversion counts
    exposed    INTEGER NOT NULL,        -- time of the first exposure
    converted  INTEGER,                 -- time of the first conversion after it; NULL: none
    hours      BLOB    NOT NULL,        -- packed: hour, conversions and revenue of each hour with conversions
    PRIMARY KEY (person, experiment)
) STRICT, WITHOUT ROWID;

-- Sums of experiments by hours since 2019. A person counts once.
CREATE TABLE experiment_hours (
    tenant             INTEGER NOT NULL,
    experiment         INTEGER NOT NULL,
    arm                INTEGER NOT NULL, -- code; -1 - the first arm's code: mixed
    hour               INTEGER NOT NULL,
    exposed            INTEGER NOT NULL, -- people with their first exposure in this hour: its cohort
    cohort_converted   INTEGER NOT NULL, -- people of the cohort that converted in any hour
    cohort_conversions INTEGER NOT NULL, -- conversions of the cohort in any hour
    cohort_revenue     INTEGER NOT NULL, -- their revenue, in micros
    converted          INTEGER NOT NULL, -- people with their first conversion in this hour
    conversions        INTEGER NOT NULL, -- conversions in this hour
    revenue            INTEGER NOT NULL, -- revenue of this hour, in micros
    PRIMARY KEY (tenant, experiment, arm, hour)
) STRICT, WITHOUT ROWID;

-- Delays from the first exposure to the first conversion, over all arms.
CREATE TABLE experiment_delays (
    tenant     INTEGER NOT NULL,
    experiment INTEGER NOT NULL,
    hour       INTEGER NOT NULL,        -- hour of the first exposure, since 2019
    delay      INTEGER NOT NULL,        -- whole hours up to the first conversion, at most 720
    people     INTEGER NOT NULL,
    PRIMARY KEY (tenant, experiment, hour, delay)
) STRICT, WITHOUT ROWID;

-- Current version of each tenant's catalogue.
CREATE TABLE catalogue_current (
    tenant  INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    since   INTEGER NOT NULL            -- time at which it became current
) STRICT;
CREATE INDEX catalogue_current_by_since ON catalogue_current (since);

-- Codes of ids in catalogues. The code of a sort and an id never changes.
CREATE TABLE catalogue_codes (
    tenant     INTEGER NOT NULL,
    sort       TEXT    NOT NULL,        -- `advertiser`, `campaign`, `ad_group`, `ad`, `experiment`
    id         TEXT    NOT NULL,
    code       INTEGER NOT NULL,
    conversion TEXT,                    -- name that the experiment counts as its conversion, from its last version. It
                                        -- counts for as long as conversions are stored
    conversion_until INTEGER,           -- end of the last version with it; NULL: the current version has it
    PRIMARY KEY (tenant, sort, id),
    UNIQUE (tenant, sort, code)
) STRICT, WITHOUT ROWID;
CREATE INDEX catalogue_conversions ON catalogue_codes (tenant, code, conversion, conversion_until)
    WHERE conversion IS NOT NULL;

-- Traffic allocation of a tenant. It is computed once a minute and published when it changed.
CREATE TABLE traffic_allocation (
    tenant INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,            -- time of the computation
    value  TEXT    NOT NULL             -- shares by experiment and paces by campaign, as JSON
) STRICT;

-- Spend of campaigns with budgets.
CREATE TABLE spend (
    tenant   INTEGER NOT NULL,
    campaign INTEGER NOT NULL,          -- its code
    day      INTEGER NOT NULL,          -- days since 1970 in the campaign's time zone; -1: sum of all days
    nanos    INTEGER NOT NULL,          -- billionths of the currency
    PRIMARY KEY (tenant, campaign, day)
) STRICT, WITHOUT ROWID;

-- FactIds of anonymous actions that were counted. They have no visitor, so `fact_ids` cannot hold them.
CREATE TABLE anonymous_facts (
    tenant INTEGER NOT NULL,
    day    INTEGER NOT NULL,            -- UTC day of receipt
    id     INTEGER NOT NULL,            -- first eight bytes of the FactId
    PRIMARY KEY (tenant, day, id)
) STRICT, WITHOUT ROWID;

-- Offer codes: the first code that a visitor got in each campaign.
CREATE TABLE offer_codes (
    visitor  INTEGER NOT NULL,          -- row in `visitors`
    campaign INTEGER NOT NULL,          -- its code
    number   INTEGER NOT NULL,
    at       INTEGER NOT NULL,          -- receipt
    PRIMARY KEY (visitor, campaign)
) STRICT, WITHOUT ROWID;

-- Offer codes that were given, including codes of visitors that were erased since.
CREATE TABLE offer_codes_given (
    tenant   INTEGER NOT NULL,
    campaign INTEGER NOT NULL,          -- its code
    number   INTEGER NOT NULL,
    PRIMARY KEY (tenant, campaign, number)
) STRICT, WITHOUT ROWID;

-- Sweeps: people with many visitors, whose snapshots must all be written again because a visitor left. Each step puts a
-- page of visitors in the outbox, the most recently active first. A visitor that becomes active during the sweep is
-- published for its new facts, so the sweep does not need it.
CREATE TABLE sweeps (
    person    INTEGER PRIMARY KEY,
    before    INTEGER NOT NULL,         -- version counter; snapshots of a later version are up to date
    last_seen INTEGER NOT NULL,         -- newest receipt of the visitor at which the last step ended
    visitor   INTEGER NOT NULL,         -- row of that visitor
    again     INTEGER NOT NULL DEFAULT 0,       -- 1: another visitor left during this round, and a second round follows
    turn      INTEGER NOT NULL DEFAULT 0,       -- the sweep with the lowest turn makes the next step
    put       INTEGER NOT NULL DEFAULT 0        -- time of the last step. After a pause of over a minute, the sweep
                                                -- makes a step even if the outbox is not empty
) STRICT;
CREATE INDEX sweeps_by_turn ON sweeps (turn);

-- Runs of jobs: waiting runs, active runs with their progress, and the newest ended runs.
CREATE TABLE runs (
    run     INTEGER PRIMARY KEY,
    job     TEXT    NOT NULL,
    tenant  INTEGER,                    -- tenant of a job for one tenant; NULL: all tenants
    trigger TEXT    NOT NULL,           -- timer, signal or command
    dry_run INTEGER NOT NULL,           -- 1: the run reports its changes and does not make them
    requested INTEGER NOT NULL,         -- time of the request
    started INTEGER,                    -- time of the first start; NULL: the run waits
    starts  INTEGER NOT NULL DEFAULT 0, -- number of starts since it last ended in order
    ended   INTEGER,                    -- time of its end; NULL: it waits or is active
    done    INTEGER NOT NULL DEFAULT 0, -- completed part of `total`
    total   INTEGER NOT NULL DEFAULT 0, -- amount of work, in units of the job
    cursor  INTEGER NOT NULL DEFAULT 0, -- position at which the run continues
    outcome TEXT,                       -- done, failed or interrupted
    report  TEXT    NOT NULL DEFAULT '{}'
) STRICT;
CREATE INDEX runs_by_job ON runs (job, run);

-- Audit trail: links, unlinks, erasures and names that were taken back, each with its originator and reason. A row is
-- permanent. An erasure removes the erased ids from it.
CREATE TABLE audit (
    row     INTEGER PRIMARY KEY,        -- in the order of storing
    tenant  INTEGER NOT NULL,
    id      BLOB    NOT NULL,           -- FactId of its first fact, which is the receipt of an erasure; for an import
                                        -- random, drawn once per run
    at      INTEGER NOT NULL,           -- time of the request
    what    TEXT    NOT NULL,           -- link, unlink, erase, forget_attribute, forget_event
    by      TEXT    NOT NULL,           -- token:NUMBER, cli, visitor, job:NAME; from an earlier release: admin, journal
    name    TEXT,                       -- name of the token, or of the user of the operating system
    role    TEXT,                       -- role of the token
    reason  TEXT,
    visitor BLOB,
    other   BLOB,                       -- second visitor of a link
    kind    INTEGER,                    -- kind of the alternate id; NULL: none
    hash    BLOB,                       -- hash of the alternate id as requested, not always the canonical one
    object  TEXT,                       -- name that was taken back
    count   INTEGER NOT NULL,           -- number of added or ended evidence rows, of erased visitors, or of names
    UNIQUE (tenant, id, at)
) STRICT;
CREATE INDEX audit_of_tenant ON audit (tenant);
CREATE INDEX audit_by_visitor ON audit (tenant, visitor) WHERE visitor IS NOT NULL;
CREATE INDEX audit_by_other ON audit (tenant, other) WHERE other IS NOT NULL;
CREATE INDEX audit_by_id ON audit (tenant, kind, hash) WHERE hash IS NOT NULL;

-- KV keys that a run of the job `verify` reads back. A row is deleted when the run has compared the value of its key.
CREATE TABLE verifications (
    entry        INTEGER PRIMARY KEY,   -- number of this look; a number is used once
    tenant       INTEGER NOT NULL,
    kind         INTEGER NOT NULL,      -- as in `outbox`
    subject      BLOB    NOT NULL,
    due          INTEGER NOT NULL,      -- earliest time of reading
    leased_until INTEGER NOT NULL DEFAULT 0, -- end of the lease
    requested    INTEGER,               -- time of the first request to an edge; NULL: none
    answered     INTEGER,               -- time of the answer; NULL: none
    sha256       BLOB,                  -- SHA-256 of the value that was read; NULL: the key had no value
    looks        INTEGER NOT NULL,      -- number of earlier looks at the key
    expected     BLOB                   -- value that the previous look expected, empty for no value; NULL: unknown
) STRICT;
CREATE INDEX verifications_open ON verifications (due) WHERE answered IS NULL;
CREATE INDEX verifications_answered ON verifications (entry) WHERE answered IS NOT NULL;

-- Versions under which the pointer, the model and the traffic allocation of a tenant were handed out last.
CREATE TABLE standing (
    tenant    INTEGER NOT NULL,
    kind      INTEGER NOT NULL,         -- as in `outbox`
    published INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind)
) STRICT, WITHOUT ROWID;

-- Keys of alternate ids that are no longer read. The job `trim` has deleted their lookups from the KV.
CREATE TABLE retired_keys (
    tenant INTEGER NOT NULL,
    kind   INTEGER NOT NULL,            -- kind of the ids
    key    INTEGER NOT NULL,            -- first byte of their hashes, which names the key
    PRIMARY KEY (tenant, kind, key)
) STRICT, WITHOUT ROWID;

-- Changes of people in their order: a person was added, changed or removed. The audience index follows this table. A
-- number is never used again, so that the index sees every change.
CREATE TABLE people_changed (
    seq    INTEGER PRIMARY KEY AUTOINCREMENT,
    person INTEGER NOT NULL
) STRICT;

-- Materialised audiences: audiences that a job stores as segments.
CREATE TABLE audiences (
    tenant      INTEGER NOT NULL,
    segment     INTEGER NOT NULL,
    filter      TEXT,             -- JSON; NULL: it matches no person, and the row is deleted after its last member left
    hours       INTEGER NOT NULL, -- time for which a member stays in the segment after each write
    every_hours INTEGER NOT NULL, -- interval of its refreshes; 0: it is refreshed only on request
    due         INTEGER,          -- time from which it is to be refreshed; NULL: only on request
    refreshed   INTEGER,          -- time of the last refresh; NULL: none yet
    members     INTEGER NOT NULL, -- number of people in the last refresh
    PRIMARY KEY (tenant, segment)
) STRICT, WITHOUT ROWID;

-- Members of materialised audiences: visitors that have the segment.
CREATE TABLE audience_members (
    tenant  INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    visitor BLOB    NOT NULL,
    until   INTEGER NOT NULL,           -- hour of the expiry, since 2019
    PRIMARY KEY (tenant, segment, visitor)
) STRICT, WITHOUT ROWID;

-- Sum of the activity histograms of all people of a tenant, by hour of the week in local time.
CREATE TABLE activity_histograms (
    tenant INTEGER PRIMARY KEY,
    people INTEGER NOT NULL,            -- number of people in the sum
    summed INTEGER NOT NULL,            -- time of the computation
    hours  BLOB    NOT NULL             -- 168 sums of eight bytes
) STRICT;

-- Sends. A send draws people at random from the people that match a filter, and delivers to each of them once.
CREATE TABLE sends (
    send       INTEGER PRIMARY KEY,
    tenant     INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    filter     TEXT    NOT NULL,      -- JSON
    count      INTEGER NOT NULL,      -- requested number of people
    experiment TEXT,                  -- experiment to whose arms the people are assigned; NULL: none
    webhook    INTEGER NOT NULL,      -- 1: the tenant's webhook gets the deliveries
    per_second INTEGER NOT NULL,      -- most people delivered per second; 0: no limit
    random     INTEGER NOT NULL,      -- seed of the draw
    requested  INTEGER NOT NULL,      -- time of the request
    chosen     INTEGER,               -- number of drawn people; NULL until all of them are stored
    next       INTEGER NOT NULL DEFAULT 0, -- position of the first person without an outcome
    delivered  INTEGER NOT NULL DEFAULT 0, -- people that were delivered
    control    INTEGER NOT NULL DEFAULT 0, -- people in the control of the experiment, without a delivery
    gone       INTEGER NOT NULL DEFAULT 0, -- people that were erased or withdrew after the draw
    merged     INTEGER NOT NULL DEFAULT 0, -- people that became one with a person that was delivered before
    "left"     INTEGER NOT NULL DEFAULT 0, -- people that no longer matched, or whose rows could not be read
    due        INTEGER,               -- time of its next step; NULL: it is over
    tries      INTEGER NOT NULL DEFAULT 0, -- failed attempts since its last progress
    error      TEXT,                  -- last error; NULL: none
    UNIQUE (tenant, name)
) STRICT;

-- People that a send drew, in the order of delivery.
CREATE TABLE send_people (
    send    INTEGER NOT NULL,
    place   INTEGER NOT NULL,         -- position in the order of delivery, from 0; an erased visitor leaves a gap
    visitor BLOB    NOT NULL,         -- master of the person when it was drawn
    arm     INTEGER,                  -- code of the arm; NULL: no experiment
    outcome INTEGER,                  -- 1 delivered, 2 control, 3 gone, 4 merged, 5 left; NULL: no outcome yet
    at      INTEGER,                  -- time of the outcome
    PRIMARY KEY (send, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX send_people_visitor ON send_people (visitor, send);

-- Evidence that ties a visitor to an alternate id. Only the times of a row change; `cancelled` ends the evidence until
-- newer evidence arrives. Each source has a row per weight, so that newer evidence with a lower weight does not restore
-- a cancelled row of a higher weight.
CREATE TABLE evidence (
    tenant    INTEGER NOT NULL,
    visitor   BLOB    NOT NULL,
    kind      INTEGER NOT NULL,
    hash      BLOB    NOT NULL,         -- canonical, see `alternates`
    source    INTEGER NOT NULL,         -- 1: proven login, 2: named by a page without proof, 3 to 6: `EvidenceSource`
    weight    INTEGER NOT NULL,         -- per mille, 0 to 1000
    first     INTEGER NOT NULL,         -- time of the first observation
    last      INTEGER NOT NULL,         -- time of the last observation
    cancelled INTEGER,                  -- time of the cancellation; 9223372036854775807: permanent; NULL: none
    flag      INTEGER,                  -- reason against a link; 1: second unique id, 2: joins two people, 3: oversized
                                        -- group; NULL: none
    PRIMARY KEY (tenant, visitor, kind, hash, source, weight)
) STRICT, WITHOUT ROWID;
-- Evidence of an id with a weight, and without one. Each has an index of its own, so that a million visitors that only
-- claim an id do not slow down the visitors that have it.
CREATE INDEX evidence_of_id ON evidence (tenant, kind, hash, last DESC, visitor, cancelled) WHERE weight > 0;
CREATE INDEX claims_of_id ON evidence (tenant, kind, hash, last DESC, visitor) WHERE weight = 0;

-- FactIds of a day that has filled its rows in `fact_ids`, one row per FactId. A fold then reads the rows of `fact_ids`
-- and one row of this table, at any number of facts of a visitor.
CREATE TABLE fact_ids_over (
    visitor INTEGER NOT NULL,           -- row in `visitors`
    day     INTEGER NOT NULL,           -- since 2019
    id      INTEGER NOT NULL,           -- first eight bytes, as a signed number
    PRIMARY KEY (visitor, day, id)
) STRICT, WITHOUT ROWID;

-- Unpaid purchases: purchases without a click that pays for them. The click may arrive after its purchase.
CREATE TABLE purchases_unpaid (
    visitor  INTEGER NOT NULL,          -- row in `visitors`
    id       INTEGER NOT NULL,          -- first eight bytes of the FactId, as a signed number
    minute   INTEGER NOT NULL,          -- of the purchase, since 2019
    received INTEGER NOT NULL,          -- receipt
    value    INTEGER NOT NULL,          -- micros
    until    INTEGER NOT NULL,          -- end of the time in which a click may pay for it
    order_hash INTEGER,                 -- OrderHash, as a signed number; NULL: the purchase names no order
    PRIMARY KEY (visitor, id)
) STRICT, WITHOUT ROWID;

-- Orders that a campaign has paid for. An order is paid once per person.
CREATE TABLE orders_paid (
    visitor INTEGER NOT NULL,           -- row in `visitors`
    order_hash INTEGER NOT NULL,        -- OrderHash, as a signed number
    minute  INTEGER NOT NULL,           -- of the purchase, since 2019
    PRIMARY KEY (visitor, order_hash)
) STRICT, WITHOUT ROWID;

-- Sweeps that an erasure waits for: people whose snapshots may name an erased visitor and are not all in the outbox.
-- A step of the sweep adds its keys to the keys of the erasure. A person whose snapshots are all put in at once has a
-- row only within that transaction.
CREATE TABLE erasure_sweeps (
    tenant  INTEGER NOT NULL,
    receipt BLOB    NOT NULL,           -- receipt of the erasure
    person  INTEGER NOT NULL,           -- person in `sweeps`
    rounds  INTEGER NOT NULL,           -- 1: the current round covers all of its visitors; 2: the next round does
    PRIMARY KEY (tenant, receipt, person)
) STRICT, WITHOUT ROWID;
CREATE INDEX erasure_sweeps_by_person ON erasure_sweeps (person);

-- Catalogues: every version that was applied. The document is the last column: it may have megabytes, and SQLite reads
-- over it to reach a later column.
CREATE TABLE catalogues (
    tenant      INTEGER NOT NULL,
    version     INTEGER NOT NULL,       -- from 1 on
    replaced    INTEGER,                -- time at which it stopped being current; NULL: it is current, or never was
    handed      INTEGER,                -- outbox entry under which its value was handed out last
    published   INTEGER,                -- time at which the KV acknowledged its value; NULL: the KV may lack it
    applied     INTEGER NOT NULL,
    by          TEXT    NOT NULL,       -- `cli`, or the name of the token
    sha256      BLOB    NOT NULL,       -- SHA-256 of the document
    limited     TEXT    NOT NULL DEFAULT '[]', -- campaigns with a limited number of recipients, as JSON
    budgets     TEXT    NOT NULL DEFAULT '[]', -- part of the document that billing needs, as JSON
    experiments TEXT    NOT NULL,       -- part of the document that the fold needs, as JSON
    queried     TEXT,                   -- data of people that its filters use, as JSON; NULL: derived from the document
    document    TEXT    NOT NULL,       -- JSON; each entry has its code
    PRIMARY KEY (tenant, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX catalogues_handed ON catalogues (handed) WHERE handed IS NOT NULL AND published IS NULL;

-- Quarantined visitors: their row, or a part of their tenant's current catalogue, cannot be read. Their facts wait.
CREATE TABLE unreadable (
    row   INTEGER PRIMARY KEY,          -- row in `visitors`; below zero: negated tenant, for its anonymous facts
    since INTEGER NOT NULL
) STRICT;

-- Facts of quarantined visitors, which wait until the row can be read.
CREATE TABLE quarantined_facts (
    row   INTEGER NOT NULL,             -- row in `unreadable`
    id    BLOB    NOT NULL,             -- FactId
    fact  BLOB    NOT NULL,             -- the encoded fact
    admin INTEGER NOT NULL,             -- 1: the fact is from the admin side
    said  TEXT,                         -- originator and reason of a fact from the admin side
    UNIQUE (row, id)
) STRICT;
