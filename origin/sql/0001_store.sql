-- The origin's store. Ids are 16-byte blobs; times are milliseconds since the Unix epoch; a tenant is its number in
-- `tenants`.

-- One row: counters that only grow, and the restore epoch.
CREATE TABLE meta (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    identity        BLOB    NOT NULL,   -- random; its log and its journal of erasures have the same
    restore_epoch   INTEGER NOT NULL,   -- how often this store came back from a backup
    version_counter INTEGER NOT NULL,   -- counter part of the versions issued so far
    epoch_counter   INTEGER NOT NULL,   -- membership epochs issued so far
    folded          INTEGER NOT NULL DEFAULT 0, -- newest log record that is in this store
    columns_epoch   INTEGER NOT NULL DEFAULT 0, -- columns of people, and their file, that have another number are rebuilt
    event_names     INTEGER NOT NULL DEFAULT 0, -- another number whenever `event_names` has other rows
    columns_erased  INTEGER NOT NULL DEFAULT 0  -- newest change with an erasure: an older file of columns is rewritten
) STRICT;
INSERT INTO meta (id, identity, restore_epoch, version_counter, epoch_counter) VALUES (1, randomblob(16), 0, 0, 0);

-- Numbers of tenants; append-only.
CREATE TABLE tenants (
    tenant INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE
) STRICT;

-- One browser and what its own facts add up to.
CREATE TABLE visitors (
    row        INTEGER PRIMARY KEY,
    tenant     INTEGER NOT NULL,
    visitor    BLOB    NOT NULL,
    last_seen  INTEGER NOT NULL,        -- receive time of its newest fact
    version    INTEGER NOT NULL,        -- version counter at its last change
    restore    INTEGER NOT NULL,        -- restore epoch of that version
    published  INTEGER NOT NULL,        -- version counter of its snapshot handed out last; 0: none yet
    withdrawn  INTEGER,                 -- when it withdrew its permission
    person     INTEGER NOT NULL,        -- its row in `people`
    profile    BLOB    NOT NULL,        -- without the parts that most facts do not touch: those follow
    actions    INTEGER NOT NULL DEFAULT 0,      -- how many actions its buckets hold
    segments   BLOB    NOT NULL DEFAULT x'',    -- packed
    attributes BLOB    NOT NULL DEFAULT x'',    -- packed
    weight     INTEGER NOT NULL DEFAULT 1000,   -- how surely it belongs to its person, per mille: the weakest link on the
                                                -- way to the holder of the person's unique id, or to its master
    events     BLOB    NOT NULL DEFAULT x'',    -- by name, packed
    best       INTEGER,                 -- best send time in its snapshot handed out last: 256 times the hour, and the
                                        -- confidence. A version's value stays, whatever the tenant's sums are since
    truncated  INTEGER NOT NULL DEFAULT 0,      -- whether its snapshot handed out last had no room for something
    UNIQUE (tenant, visitor)
) STRICT;
-- They are written again when a catalogue asks for what their snapshots may have left out.
CREATE INDEX visitors_truncated ON visitors (tenant) WHERE truncated;
CREATE INDEX visitors_by_person ON visitors (person, last_seen DESC);
-- Whose each visitor is, without its row: a visitor has hundreds of bytes there, and forty here.
CREATE INDEX visitors_by_id ON visitors (tenant, visitor, person, weight);

-- People. A visitor that was never linked is a person of one, so that its membership has an epoch too.
-- A row stays while a visitor points to it.
CREATE TABLE people (
    person       INTEGER PRIMARY KEY,
    tenant       INTEGER NOT NULL,
    master       BLOB    NOT NULL,      -- the oldest visitor
    devices      INTEGER NOT NULL,      -- how many visitors point here
    epoch        INTEGER NOT NULL,      -- of its membership
    changed      INTEGER NOT NULL,      -- version counter at the last change of a member or of the membership
    siblings_due INTEGER,               -- when snapshots older than `changed` are put in the outbox
    random       BLOB,                  -- drawn once: its buckets come from it
    weight       INTEGER NOT NULL DEFAULT 1000  -- its master's
) STRICT;
CREATE INDEX people_by_due ON people (siblings_due) WHERE siblings_due IS NOT NULL;
-- All people of a tenant, by their masters.
CREATE INDEX people_by_master ON people (tenant, master);

-- Visitors that left a person. The newest limits::CUTS of each are kept.
CREATE TABLE cuts (
    person  INTEGER NOT NULL,
    visitor BLOB    NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (person, visitor)
) STRICT, WITHOUT ROWID;
-- Of an erased visitor all cuts are found.
CREATE INDEX cuts_by_visitor ON cuts (visitor);

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
    kind         INTEGER NOT NULL,      -- 0: snapshot, else the kind of the lookup; above 255: of no visitor and no id
    subject      BLOB    NOT NULL,      -- visitor, or hash as it is in the key
    changed      INTEGER NOT NULL,      -- version counter at the newest change
    due          INTEGER,               -- none: settled
    lease        INTEGER,               -- id it was handed out under
    lease_change INTEGER NOT NULL,      -- `changed` at that moment
    leased_until INTEGER NOT NULL,
    handed       INTEGER NOT NULL,      -- when it was handed out last
    late         INTEGER NOT NULL DEFAULT 0,    -- until when a consumer that was given up may still write: then the key is
                                                -- written once more
    priority     INTEGER NOT NULL DEFAULT 2,    -- 0: what every request of a tenant goes by, 1: visitors that left or
                                                -- are erased, 2: news, 3: bulk. Within a priority tenants take turns
    UNIQUE (tenant, kind, subject)
) STRICT;
CREATE INDEX outbox_by_lease ON outbox (lease) WHERE lease IS NOT NULL;
CREATE INDEX outbox_settled ON outbox (handed) WHERE due IS NULL;
CREATE INDEX outbox_by_turn ON outbox (priority, tenant, due, kind) WHERE due IS NOT NULL;

-- Bearer tokens of the admin side, hashed.
CREATE TABLE tokens (
    token   INTEGER PRIMARY KEY,
    hash    BLOB NOT NULL UNIQUE,       -- SHA-256 of the token's text
    role    TEXT NOT NULL,
    name    TEXT NOT NULL,
    created INTEGER NOT NULL,
    revoked INTEGER,
    tenant  TEXT,                       -- by its name; NULL: all tenants
    expires INTEGER,                    -- NULL: never
    used    INTEGER                     -- when it was used last, to the hour
) STRICT;

-- [visitor][bucket] -> packed actions. A full day is cut into hours, a full hour into minutes.
-- A table by an integer key: its inner pages hold hundreds of keys, where those of WITHOUT ROWID would hold four bodies.
CREATE TABLE actions (
    place   INTEGER PRIMARY KEY,        -- row in `visitors` << 32 | first minute, since 2019
    minutes INTEGER NOT NULL,           -- 1, 60 or 1440
    count   INTEGER NOT NULL,
    body    BLOB    NOT NULL
) STRICT;

-- FactIds counted: their first eight bytes, by visitor and the UTC day of their receipt. They outlive the log, and are
-- forgotten after limits::FACT_ID_KEEP_MS.
CREATE TABLE fact_ids (
    visitor INTEGER NOT NULL,           -- row in `visitors`
    day     INTEGER NOT NULL,           -- since 2019
    part    INTEGER NOT NULL,
    ids     BLOB    NOT NULL,
    PRIMARY KEY (visitor, day, part)
) STRICT, WITHOUT ROWID;

-- Files imported, and how far.
CREATE TABLE imports (
    file    TEXT    NOT NULL PRIMARY KEY,   -- hash of its path, length and time of change
    lines   INTEGER NOT NULL,               -- done, the first line of a CSV among them
    changed INTEGER NOT NULL,
    ended   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Names of attributes in the order of their first use, and what kind of value each has. Append-only.
CREATE TABLE attribute_names (
    tenant INTEGER NOT NULL,
    token  INTEGER NOT NULL,
    name   TEXT    NOT NULL,
    kind   INTEGER NOT NULL,
    PRIMARY KEY (tenant, token),
    UNIQUE (tenant, name)
) STRICT, WITHOUT ROWID;

-- How many names pages of a visitor brought today: what a tenant's anonymous browsers may use up has a bound.
CREATE TABLE names_brought (
    tenant  INTEGER NOT NULL,
    what    INTEGER NOT NULL,           -- 0: names of attributes, 1: names of events
    day     INTEGER NOT NULL,           -- since 1970
    visitor BLOB    NOT NULL,
    names   INTEGER NOT NULL,
    PRIMARY KEY (tenant, what, day, visitor)
) STRICT, WITHOUT ROWID;

-- Names of events that audiences count: each has columns in the index of people.
CREATE TABLE event_names (
    tenant INTEGER NOT NULL,
    name   TEXT    NOT NULL,
    source INTEGER NOT NULL,            -- 0: a page brought it, 1: the admin side or a file, 2: it is declared or in use
    since  INTEGER NOT NULL,            -- when it came
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

-- Evidence that the admin side ended, kept also before the evidence comes: `evidence.cancelled` follows from it.
CREATE TABLE cancellations (
    tenant  INTEGER NOT NULL,
    visitor BLOB    NOT NULL,
    kind    INTEGER NOT NULL,
    hash    BLOB    NOT NULL,           -- canonical, see `alternates`
    at      INTEGER NOT NULL,           -- the newest cancellation
    PRIMARY KEY (tenant, visitor, kind, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX cancellations_by_id ON cancellations (tenant, kind, hash);

-- Visitors erased, for ever: what comes of them is refused. Their rows in `visitors` keep the tombstone alone.
CREATE TABLE erased (
    tenant  INTEGER NOT NULL,
    visitor BLOB    NOT NULL,
    at      INTEGER NOT NULL,           -- receipt of the erasure
    receipt BLOB    NOT NULL,
    PRIMARY KEY (tenant, visitor)
) STRICT, WITHOUT ROWID;

-- Alternate ids erased, under each of their hashes: who was seen with one until `at` is erased too.
CREATE TABLE erased_ids (
    tenant  INTEGER NOT NULL,
    kind    INTEGER NOT NULL,
    hash    BLOB    NOT NULL,
    at      INTEGER NOT NULL,           -- the newest erasure
    receipt BLOB    NOT NULL,
    PRIMARY KEY (tenant, kind, hash)
) STRICT, WITHOUT ROWID;

-- One row an erasure asked for.
CREATE TABLE erasures (
    tenant  INTEGER NOT NULL,
    receipt BLOB    NOT NULL,           -- its FactId
    requested INTEGER NOT NULL,
    stored  INTEGER NOT NULL,           -- when all of it was gone from the store
    log_seq INTEGER NOT NULL,           -- records of the log up to here may hold it
    log     INTEGER,                    -- when the last of them was gone
    PRIMARY KEY (tenant, receipt)
) STRICT, WITHOUT ROWID;
CREATE INDEX erasures_in_log ON erasures (log_seq) WHERE log IS NULL;

-- KV keys whose value may name somebody erased. One is done once a write of a version above `after` was acknowledged.
CREATE TABLE erasure_keys (
    tenant   INTEGER NOT NULL,
    receipt  BLOB    NOT NULL,
    kind     INTEGER NOT NULL,          -- as in `outbox`
    subject  BLOB    NOT NULL,
    after    INTEGER NOT NULL,          -- version counter at the erasure
    written  INTEGER,
    verified INTEGER,                   -- when the key was read back and no erased visitor was in it
    PRIMARY KEY (tenant, receipt, kind, subject)
) STRICT, WITHOUT ROWID;
CREATE INDEX erasure_keys_open ON erasure_keys (tenant, kind, subject) WHERE written IS NULL;
CREATE INDEX erasure_keys_unverified ON erasure_keys (tenant, kind, subject) WHERE verified IS NULL;

-- Models trained, by tenant: the newest is the one to publish. Nothing in them names anybody.
CREATE TABLE models (
    tenant  INTEGER NOT NULL,
    version INTEGER NOT NULL,           -- 1 and on, by tenant
    at      INTEGER NOT NULL,           -- when it was trained
    bytes   BLOB    NOT NULL,           -- as the edge reads it
    report  TEXT    NOT NULL,           -- how good it is, as JSON
    PRIMARY KEY (tenant, version)
) STRICT, WITHOUT ROWID;

-- What purchases were worth and when: labels to learn from.
CREATE TABLE purchases (
    place INTEGER PRIMARY KEY,          -- row in `visitors` << 32 | minute, since 2019
    count INTEGER NOT NULL,
    value INTEGER NOT NULL              -- micros, of all of them
) STRICT;

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
    name     TEXT    NOT NULL,          -- of the event or the action type
    value    INTEGER NOT NULL,          -- micros
    PRIMARY KEY (visitor, received, id)
) STRICT, WITHOUT ROWID;

-- What a person adds to the sums. A person has a row for each experiment that any of its visitors was exposed to.
CREATE TABLE experiment_people (
    person     INTEGER NOT NULL,
    experiment INTEGER NOT NULL,
    tenant     INTEGER NOT NULL,
    arm        INTEGER NOT NULL,        -- -1 - code of the first: mixed, no conversions are counted
    exposed    INTEGER NOT NULL,        -- first exposure
    converted  INTEGER,                 -- first conversion from then on
    hours      BLOB    NOT NULL,        -- packed: hour, conversions, revenue of each hour with conversions
    PRIMARY KEY (person, experiment)
) STRICT, WITHOUT ROWID;

-- Sums by hours since 2019, people counted once.
CREATE TABLE experiment_hours (
    tenant             INTEGER NOT NULL,
    experiment         INTEGER NOT NULL,
    arm                INTEGER NOT NULL, -- -1 - code of the first: mixed
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

-- Which version is current.
CREATE TABLE catalogue_current (
    tenant  INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    since   INTEGER NOT NULL
) STRICT;
CREATE INDEX catalogue_current_by_since ON catalogue_current (since);

-- Codes are for ever: of an id, and of a sort.
CREATE TABLE catalogue_codes (
    tenant     INTEGER NOT NULL,
    sort       TEXT    NOT NULL,        -- `advertiser`, `campaign`, `ad_group`, `ad`, `experiment`
    id         TEXT    NOT NULL,
    code       INTEGER NOT NULL,
    conversion TEXT,                    -- what an experiment counts as its conversions, by the version that had it last: it
                                        -- goes on counting that for as long as conversions are kept
    conversion_until INTEGER,           -- until when a version had it; none: it is in the current one
    PRIMARY KEY (tenant, sort, id),
    UNIQUE (tenant, sort, code)
) STRICT, WITHOUT ROWID;
CREATE INDEX catalogue_conversions ON catalogue_codes (tenant, code, conversion, conversion_until)
    WHERE conversion IS NOT NULL;

-- Traffic allocation of a tenant: rebuilt each minute, published when it changed.
CREATE TABLE traffic_allocation (
    tenant INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,            -- when it was made
    value  TEXT    NOT NULL             -- the shares by experiment and the paces by campaign, as JSON
) STRICT;

-- Budgets: what campaigns spend.
CREATE TABLE spend (
    tenant   INTEGER NOT NULL,
    campaign INTEGER NOT NULL,          -- its code
    day      INTEGER NOT NULL,          -- days since 1970 where the campaign's days begin; -1: all of them
    nanos    INTEGER NOT NULL,          -- billionths of the currency
    PRIMARY KEY (tenant, campaign, day)
) STRICT, WITHOUT ROWID;

-- Anonymous actions that were counted: they belong to no visitor that would remember them.
CREATE TABLE anonymous_facts (
    tenant INTEGER NOT NULL,
    day    INTEGER NOT NULL,            -- of its receipt
    id     INTEGER NOT NULL,            -- first eight bytes of the FactId
    PRIMARY KEY (tenant, day, id)
) STRICT, WITHOUT ROWID;

-- Of each campaign the offer code that a visitor got first.
CREATE TABLE offer_codes (
    visitor  INTEGER NOT NULL,          -- row in `visitors`
    campaign INTEGER NOT NULL,          -- its code
    number   INTEGER NOT NULL,
    at       INTEGER NOT NULL,          -- receipt
    PRIMARY KEY (visitor, campaign)
) STRICT, WITHOUT ROWID;

-- Offer codes that were given, also to visitors that are erased by now.
CREATE TABLE offer_codes_given (
    tenant   INTEGER NOT NULL,
    campaign INTEGER NOT NULL,          -- its code
    number   INTEGER NOT NULL,
    PRIMARY KEY (tenant, campaign, number)
) STRICT, WITHOUT ROWID;

-- People with many visitors, all of whose snapshots must be written anew as somebody left: put in the outbox bit by bit, the
-- last active first. A visitor that becomes active meanwhile is published for that.
CREATE TABLE sweeps (
    person    INTEGER PRIMARY KEY,
    before    INTEGER NOT NULL,         -- version counter: snapshots handed out after it are right
    last_seen INTEGER NOT NULL,         -- the visitor it has come to
    visitor   INTEGER NOT NULL,         -- its row
    again     INTEGER NOT NULL DEFAULT 0,       -- another visitor left meanwhile: it goes round once more
    turn      INTEGER NOT NULL DEFAULT 0,       -- people take turns
    put       INTEGER NOT NULL DEFAULT 0        -- when it went on last: where an erasure waits, before the outbox is empty
) STRICT;
CREATE INDEX sweeps_by_turn ON sweeps (turn);

-- Runs of jobs: what waits, what is under way and how far it is, and the newest that ended.
CREATE TABLE runs (
    run     INTEGER PRIMARY KEY,
    job     TEXT    NOT NULL,
    tenant  INTEGER,                    -- of a job for one tenant; none: for all
    trigger TEXT    NOT NULL,           -- timer, signal or command
    dry_run INTEGER NOT NULL,           -- 1: it says what it would do
    requested INTEGER NOT NULL,
    started INTEGER,                    -- none: it waits
    starts  INTEGER NOT NULL DEFAULT 0, -- how often it was begun since it last ended in order
    ended   INTEGER,
    done    INTEGER NOT NULL DEFAULT 0,
    total   INTEGER NOT NULL DEFAULT 0,
    cursor  INTEGER NOT NULL DEFAULT 0, -- from where it goes on
    outcome TEXT,                       -- done, failed or interrupted
    report  TEXT    NOT NULL DEFAULT '{}'
) STRICT;
CREATE INDEX runs_by_job ON runs (job, run);

-- Who linked, unlinked and erased, and why. Kept for ever; of who is erased no row holds an id.
CREATE TABLE audit (
    row     INTEGER PRIMARY KEY,        -- in the order in which they were kept
    tenant  INTEGER NOT NULL,
    id      BLOB    NOT NULL,           -- FactId of its first fact: of an erasure the receipt. Of an import drawn once a run
    at      INTEGER NOT NULL,           -- when it was asked for
    what    TEXT    NOT NULL,           -- link, unlink, erase, forget_attribute, forget_event
    by      TEXT    NOT NULL,           -- token:NUMBER, cli, visitor, job:NAME; admin, journal: of an earlier release
    name    TEXT,                       -- the token's, or that of the operating system's user
    role    TEXT,                       -- the token's
    reason  TEXT,
    visitor BLOB,
    other   BLOB,                       -- the other visitor
    kind    INTEGER,                    -- of the alternate id, where there is one
    hash    BLOB,                       -- as it was said, see `alternates`
    object  TEXT,                       -- the name that was taken back
    count   INTEGER NOT NULL,           -- pieces of evidence that came or ended, visitors erased, names
    UNIQUE (tenant, id, at)
) STRICT;
CREATE INDEX audit_of_tenant ON audit (tenant);
CREATE INDEX audit_by_visitor ON audit (tenant, visitor) WHERE visitor IS NOT NULL;
CREATE INDEX audit_by_other ON audit (tenant, other) WHERE other IS NOT NULL;
CREATE INDEX audit_by_id ON audit (tenant, kind, hash) WHERE hash IS NOT NULL;

-- Keys that a run of `verify` has read back from the KV, until the run has looked at what was there.
CREATE TABLE verifications (
    entry        INTEGER PRIMARY KEY,   -- a number never given before: each look has its own
    tenant       INTEGER NOT NULL,
    kind         INTEGER NOT NULL,      -- as in `outbox`
    subject      BLOB    NOT NULL,
    due          INTEGER NOT NULL,      -- not read before
    leased_until INTEGER NOT NULL DEFAULT 0,
    requested    INTEGER,               -- when an edge was first asked to read it
    answered     INTEGER,
    sha256       BLOB,                  -- of what was read; none: nothing was there
    looks        INTEGER NOT NULL,      -- how often it was looked at before
    expected     BLOB                   -- what the look before expected, empty for nothing; none: it could not tell
) STRICT;
CREATE INDEX verifications_open ON verifications (due) WHERE answered IS NULL;
CREATE INDEX verifications_answered ON verifications (entry) WHERE answered IS NOT NULL;

-- Under which version the pointer, the model and the traffic allocation of a tenant were handed out last.
CREATE TABLE standing (
    tenant    INTEGER NOT NULL,
    kind      INTEGER NOT NULL,         -- as in `outbox`
    published INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind)
) STRICT, WITHOUT ROWID;

-- Keys of alternate ids that are no longer read, and whose lookups `trim` has had deleted from the KV.
CREATE TABLE retired_keys (
    tenant INTEGER NOT NULL,
    kind   INTEGER NOT NULL,            -- of the ids
    key    INTEGER NOT NULL,            -- the first byte of their hashes
    PRIMARY KEY (tenant, kind, key)
) STRICT, WITHOUT ROWID;

-- People who changed, came or went, in order: who keeps them in another form follows it. Numbers are never given again.
CREATE TABLE people_changed (
    seq    INTEGER PRIMARY KEY AUTOINCREMENT,
    person INTEGER NOT NULL
) STRICT;

-- Audiences that are kept as segments.
CREATE TABLE audiences (
    tenant      INTEGER NOT NULL,
    segment     INTEGER NOT NULL,
    filter      TEXT,             -- JSON; NULL: nobody is meant any more, and the row goes once all members left
    hours       INTEGER NOT NULL, -- for how long a member is in the segment, from each write of it
    every_hours INTEGER NOT NULL, -- how often it is refreshed; 0: when somebody asks
    due         INTEGER,          -- from when on it is to be refreshed; NULL: when somebody asks
    refreshed   INTEGER,
    members     INTEGER NOT NULL,
    PRIMARY KEY (tenant, segment)
) STRICT, WITHOUT ROWID;

-- Visitors that were written into the segment of an audience, and up to which hour.
CREATE TABLE audience_members (
    tenant  INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    visitor BLOB    NOT NULL,
    until   INTEGER NOT NULL,
    PRIMARY KEY (tenant, segment, visitor)
) STRICT, WITHOUT ROWID;

-- In which hours of the week all people of a tenant are active, by their clocks: 168 sums of eight bytes.
CREATE TABLE activity_histograms (
    tenant INTEGER PRIMARY KEY,
    people INTEGER NOT NULL,            -- of how many
    summed INTEGER NOT NULL,            -- when
    hours  BLOB    NOT NULL
) STRICT;

-- Sends: so many people drawn at random of those that a filter means, each told once.
CREATE TABLE sends (
    send       INTEGER PRIMARY KEY,
    tenant     INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    filter     TEXT    NOT NULL,      -- JSON
    count      INTEGER NOT NULL,      -- how many were requested
    experiment TEXT,                  -- whose arms they are dealt to
    webhook    INTEGER NOT NULL,      -- whether the tenant's webhook is told
    per_second INTEGER NOT NULL,      -- at most; 0: as fast as it goes
    random     INTEGER NOT NULL,      -- what they are drawn by
    requested  INTEGER NOT NULL,
    chosen     INTEGER,               -- how many were drawn; NULL until all of them are written
    next       INTEGER NOT NULL DEFAULT 0, -- the place of the first who was not looked at yet
    delivered  INTEGER NOT NULL DEFAULT 0, -- so many of those before it came to this
    control    INTEGER NOT NULL DEFAULT 0,
    gone       INTEGER NOT NULL DEFAULT 0,
    merged     INTEGER NOT NULL DEFAULT 0,
    "left"     INTEGER NOT NULL DEFAULT 0,
    due        INTEGER,               -- when it goes on; NULL once it is over
    tries      INTEGER NOT NULL DEFAULT 0, -- in vain, since it last got on
    error      TEXT,                  -- what was in the way last
    UNIQUE (tenant, name)
) STRICT;

-- Whom a send drew, in the order in which they are told.
CREATE TABLE send_people (
    send    INTEGER NOT NULL,
    place   INTEGER NOT NULL,         -- from 0 on; that of who was erased is free
    visitor BLOB    NOT NULL,         -- the person's oldest when it was drawn
    arm     INTEGER,                  -- its code
    outcome INTEGER,                  -- NULL: not looked at yet; 1 delivered, 2 control, 3 gone, 4 merged, 5 left
    at      INTEGER,                  -- when it was
    PRIMARY KEY (send, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX send_people_visitor ON send_people (visitor, send);

-- What ties a visitor to an alternate id. Never rewritten but for the times of its first and last sight; `cancelled` ends
-- it until newer evidence comes. Of one source each weight has a row: what was cancelled does not come back with less sure
-- evidence of its source.
CREATE TABLE evidence (
    tenant    INTEGER NOT NULL,
    visitor   BLOB    NOT NULL,
    kind      INTEGER NOT NULL,
    hash      BLOB    NOT NULL,         -- canonical, see `alternates`
    source    INTEGER NOT NULL,         -- 1: proven login, 2: named by the page without proof, 3 to 6: see `Source`
    weight    INTEGER NOT NULL,         -- per mille, 0 to 1000
    first     INTEGER NOT NULL,
    last      INTEGER NOT NULL,
    cancelled INTEGER,                  -- 9223372036854775807: for ever
    flag      INTEGER,                  -- 1: second unique id, 2: joins two people, 3: oversized group; none: no reason
    PRIMARY KEY (tenant, visitor, kind, hash, source, weight)
) STRICT, WITHOUT ROWID;
-- Of an id, the evidence that says something and what anyone may say: each in an index of its own, so that a million who
-- only claim an id cost those who have it nothing.
CREATE INDEX evidence_of_id ON evidence (tenant, kind, hash, last DESC, visitor, cancelled) WHERE weight > 0;
CREATE INDEX claims_of_id ON evidence (tenant, kind, hash, last DESC, visitor) WHERE weight = 0;

-- FactIds of a day that has filled its rows in `fact_ids`, a row each: to fold a fact of somebody with very many reads no more
-- than those rows and one of these, however many there are.
CREATE TABLE fact_ids_over (
    visitor INTEGER NOT NULL,           -- row in `visitors`
    day     INTEGER NOT NULL,           -- since 2019
    id      INTEGER NOT NULL,           -- first eight bytes, as a signed number
    PRIMARY KEY (visitor, day, id)
) STRICT, WITHOUT ROWID;

-- Purchases that no click pays for yet: it may come later than they.
CREATE TABLE purchases_unpaid (
    visitor  INTEGER NOT NULL,          -- row in `visitors`
    id       INTEGER NOT NULL,          -- first eight bytes of the FactId, as a signed number
    minute   INTEGER NOT NULL,
    received INTEGER NOT NULL,
    value    INTEGER NOT NULL,
    until    INTEGER NOT NULL,          -- from when on nobody pays for it
    order_hash INTEGER,                 -- its OrderHash, as a signed number; none: it says no order
    PRIMARY KEY (visitor, id)
) STRICT, WITHOUT ROWID;

-- Orders that a campaign has paid for: no visitor of the person pays for one again.
CREATE TABLE orders_paid (
    visitor INTEGER NOT NULL,           -- row in `visitors`
    order_hash INTEGER NOT NULL,        -- its OrderHash, as a signed number
    minute  INTEGER NOT NULL,           -- of the purchase, since 2019
    PRIMARY KEY (visitor, order_hash)
) STRICT, WITHOUT ROWID;

-- People whose visitors' snapshots may name somebody erased, and are not all put in the outbox yet: what puts them notes them
-- among the erasure's keys, which waits for that. People that are told at once have a row within the transaction alone.
CREATE TABLE erasure_sweeps (
    tenant  INTEGER NOT NULL,
    receipt BLOB    NOT NULL,           -- of the erasure
    person  INTEGER NOT NULL,           -- one of `sweeps`
    rounds  INTEGER NOT NULL,           -- 1: this round comes to all of its visitors; 2: the next one does
    PRIMARY KEY (tenant, receipt, person)
) STRICT, WITHOUT ROWID;
CREATE INDEX erasure_sweeps_by_person ON erasure_sweeps (person);

-- Catalogues: every version that was ever applied. A document may take megabytes, and SQLite walks over it to every column
-- after it: it is the last one.
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
    queried     TEXT,                   -- what it asks of people, as JSON; none: it is to be found in the document
    document    TEXT    NOT NULL,       -- JSON, every row with its code
    PRIMARY KEY (tenant, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX catalogues_handed ON catalogues (handed) WHERE handed IS NOT NULL AND published IS NULL;

-- Visitors whose facts wait: their row cannot be read, or a part of their tenant's current catalogue. Nobody else waits.
CREATE TABLE unreadable (
    row   INTEGER PRIMARY KEY,          -- of `visitors`; of anonymous facts the tenant's number, below zero
    since INTEGER NOT NULL
) STRICT;

-- Facts that wait, by the same row.
CREATE TABLE quarantined_facts (
    row   INTEGER NOT NULL,             -- of `visitors`
    id    BLOB    NOT NULL,
    fact  BLOB    NOT NULL,
    admin INTEGER NOT NULL,             -- whether the admin side says it
    said  TEXT,                         -- who there, and why
    UNIQUE (row, id)
) STRICT;
