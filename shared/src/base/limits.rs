//! Every bound on what comes from outside, in one place. A value over its bound is refused, never cut.

use std::ops::RangeInclusive;

/// Longest request body the edge reads, in bytes.
pub const BODY_BYTES: usize = 64 * 1024;
/// Longest single header value the edge looks at, in bytes (the platform allows 128 KiB in total).
pub const HEADER_BYTES: usize = 16 * 1024;
/// Longest value of one of our own cookies, in bytes (browsers keep 4,096 for name and value).
pub const COOKIE_BYTES: usize = 3_072;
/// Longest raw alternate id, in bytes.
pub const ALTERNATE_ID_BYTES: usize = 256;
/// Alternate id kinds a tenant may configure; with keys in rotation each may cost two lookups of one bulk read.
pub const KINDS: usize = 8;
/// Keys of one purpose that may be readable at once: the one written, the next, and the one before.
pub const KEYS_A_PURPOSE: usize = 3;
/// Placements in one decide call.
pub const PLACEMENTS: usize = 32;
/// Sizes named by one placement.
pub const SIZES: usize = 16;
/// Longest placement name, view type, keyword, event name, in bytes.
pub const NAME_BYTES: usize = 128;
/// Longest page address or referrer, in bytes.
pub const URL_BYTES: usize = 2_048;
/// Keywords of one page.
pub const KEYWORDS: usize = 64;
/// Events in one call of `/v1/events`.
pub const EVENTS: usize = 200;
/// Facts of one call of `/v1/events`, in bytes as the queue gets them: one message, of which the platform takes 128 KB.
pub const EVENTS_FACT_BYTES: usize = 120_000;
/// Longest message id chosen by a client, in bytes.
pub const MESSAGE_ID_BYTES: usize = 128;
/// Longest JSON of one event's properties, in bytes.
pub const PROPERTIES_BYTES: usize = 4_096;
/// Largest amount of one event, in micros: a million million of the currency's unit.
pub const VALUE_MICROS: i64 = 1_000_000_000_000_000_000;
/// How far back a client's own time stamp is believed, in milliseconds (30 days).
pub const EVENT_AGE_MS: u64 = 30 * 86_400_000;
/// Longest consent string, in bytes.
pub const CONSENT_BYTES: usize = 4_096;
/// Longest member proof, in bytes.
pub const PROOF_BYTES: usize = 2_048;
/// Longest life of a member proof, in seconds (24 hours).
pub const PROOF_LIFE_S: u64 = 86_400;
/// How far a publisher's clock may run ahead of ours, in seconds.
pub const PROOF_SKEW_S: u64 = 60;

/// Keys in one KV read; the platform's bulk read takes 100.
pub const KV_KEYS: usize = 100;
/// Longest snapshot, in bytes before its text form.
pub const SNAPSHOT_BYTES: usize = 64 * 1024;
/// Longest value the edge takes from the KV, in characters: a full page of the longest names in base64, with its
/// checksum, its form and its tag. A snapshot has 87,392 at most.
pub const KV_VALUE_CHARS: usize = (ATTRIBUTE_PAGE * (ATTRIBUTE_NAME_BYTES + 2) + 17).div_ceil(3) * 4 + 2;
/// Visitors of whom an isolate remembers the newest snapshot's version; some 200 bytes each.
pub const SEEN_VISITORS: usize = 4_096;
/// Snapshots that it keeps of the last of them: 4 MB where all are as long as can be.
pub const SEEN_SNAPSHOTS: usize = 64;
/// How long it uses one instead of an older one, in milliseconds: by then the newer has reached all of a location.
pub const SEEN_KEEP_MS: u64 = LEDGER_KEEP_MS;
/// Visitors of a person that one snapshot holds.
pub const SNAPSHOT_VISITORS: usize = 51;
/// Cuts that one membership names; the newest are kept.
pub const CUTS: usize = 64;
/// Ids of its newest facts that a sub-profile carries.
pub const NEWEST_FACTS: usize = 64;
/// Sessions a profile names one by one; older ones are a number.
pub const NEWEST_SESSIONS: usize = 8;
/// Visitors one lookup names, the last seen first.
pub const LOOKUP_VISITORS: usize = 3;

/// Pages of the ledger cookie: with them and [`RESERVATION_BYTES`] full it has [`LEDGER_COOKIE_BYTES`] at most.
pub const LEDGER_ENTRIES: usize = 24;
/// Bytes of the ledger cookie's reservations, packed: the newest 52 of one ad, about 25 of as many ads with usual
/// codes, 16 where every code is as long as can be.
pub const RESERVATION_BYTES: usize = 480;
/// How often traffic is steered anew, in milliseconds.
pub const STEERING_MS: u64 = 60_000;
/// How old steering may be for campaigns with budgets to go by its paces, in milliseconds.
pub const STEERING_STALE_MS: u64 = 600_000;
/// Exposures to experiments in the ledger cookie.
pub const LEDGER_EXPOSURES: usize = 8;
/// Units of limited offers in the ledger cookie.
pub const LEDGER_UNITS: usize = 4;
/// Longest ledger cookie, name and value, in bytes: every request of the page's site carries it.
pub const LEDGER_COOKIE_BYTES: usize = 1_792;
/// How long a placed insertion counts as its impression, in milliseconds (10 minutes): by then an ad that is seen has
/// been seen, and its impression is in every location's snapshot, which lag no longer than [`LEDGER_KEEP_MS`]. In
/// whole minutes, so up to one more.
pub const SERVE_WINDOW_MS: u64 = LEDGER_KEEP_MS;
/// How long a ledger entry stays although a snapshot holds it, in milliseconds: another location may still
/// serve an older snapshot.
pub const LEDGER_KEEP_MS: u64 = 10 * 60_000;
/// Life of the ledger cookie, in milliseconds (one day).
pub const LEDGER_LIFE_MS: u64 = 86_400_000;
/// Life of the identity cookie, in milliseconds (400 days, the longest that browsers keep).
pub const IDENTITY_LIFE_MS: u64 = 400 * 86_400_000;
/// Earlier (member, visitor) pairs of one browser that its cookie remembers.
pub const EARLIER_VISITORS: usize = 3;
/// Alternate ids a cookie names as read already.
pub const COVERED: usize = 8;
/// Siblings a cookie asks for until the visitor's own snapshot names them.
pub const PENDING_SIBLINGS: usize = 3;
/// Idle time that ends a session, in milliseconds (30 minutes, the field's usual value).
pub const SESSION_IDLE_MS: u64 = 30 * 60_000;

/// Facts in one sync batch.
pub const SYNC_FACTS: usize = 5_000;
/// Longest body of one sync, in bytes.
pub const SYNC_BYTES: usize = 4 * 1024 * 1024;
/// After so many bytes of values no further KV write is handed out with one answer: an isolate holds it five times over, and
/// has 128 MB.
pub const PUBLISH_BYTES: usize = 2 * 1024 * 1024;
/// Outbox entries one sync acknowledges or hands out.
pub const SYNC_PUBLISH: usize = 100;
/// Largest difference between the two clocks of a sync, in milliseconds (5 minutes).
pub const SYNC_SKEW_MS: u64 = 5 * 60_000;
/// Oldest fact the origin accepts, by the edge's receive time, in milliseconds (30 days).
pub const FACT_AGE_MS: u64 = 30 * 86_400_000;
/// How long a FactId is remembered, in milliseconds (35 days): longer than [`FACT_AGE_MS`], or a fact could count again.
pub const FACT_ID_KEEP_MS: u64 = FACT_AGE_MS + 5 * 86_400_000;
/// How far ahead of the origin's clock an edge's receive time may be, in milliseconds: further than a sync's time may be,
/// or a sync that is taken would bring facts of another location that are not.
pub const FACT_AHEAD_MS: u64 = 2 * SYNC_SKEW_MS;
/// Visitors that are looked at around one whose evidence changed. Where shared ids chain more of them, they stay as they are,
/// and `reconcile` tells of it.
pub const AROUND_VISITORS: usize = 10_000;
/// Visitors of a person that a count, or its attributes and segments, are read over.
pub const PERSON_VISITORS: usize = 100_000;
/// Visitors that a unique id may be seen with before one speaks for all.
pub const LARGE: u32 = 100;
/// Alternate ids that a visitor is seen with before another that a page names is not kept, unless it is a login.
pub const VISITOR_IDS: usize = 1_000;
/// Visitors that an id may be seen with before it is crowded, where the kind does not say.
pub const CROWD: u32 = 1_000;
/// The most that a kind may say.
pub const CROWD_MOST: u32 = 10_000;

/// Tenants in one configuration.
pub const TENANTS: usize = 1_000;
/// Hosts and origins of one tenant.
pub const HOSTS: usize = 256;

/// How long after its placing an ad's addresses count: a day, in milliseconds.
pub const TOKEN_LIFE_MS: u64 = 86_400_000;

/// How long a visitor token names its visitor, in milliseconds: as long as a fact is taken.
pub const VISITOR_TOKEN_LIFE_MS: u64 = FACT_AGE_MS;

/// Orders kept of one visitor: the newest. Of an older one it is no longer known whether another browser sent it too.
pub const ORDERS: usize = 256;

/// Ads that a decide call names as shown on the page already.
pub const SHOWN: usize = 200;

/// Visitors that the tokens of one call of events name, besides the visitor of its cookie.
pub const EVENTS_VISITORS: usize = 16;

/// Actions kept of one visitor: the newest (seed 3).
pub const ACTIONS: usize = 10_000;
/// Days an action is kept, today among them.
pub const ACTION_DAYS: u16 = 90;
/// Names of events kept of one visitor.
pub const EVENT_NAMES: usize = 64;
/// Minutes kept of each, the newest in which it was: what windows of minutes and hours are answered from.
pub const EVENT_MINUTES: usize = 64;
/// UTC days kept of each: those of the longest window, and one more, as an edge's clock may be ahead of the origin's.
pub const EVENT_DAYS: usize = ACTION_DAYS as usize + 1;
/// Groups that a general counting query may give.
pub const GROUPS: usize = 10_000;
/// Days of actions that a snapshot holds, and fewer and fewer while it is over its bytes.
pub const SNAPSHOT_WINDOWS: [u16; 4] = [CAP_DAYS + 1, 14, 7, 1];
/// Segments that a snapshot keeps before anything else because filters name them: of more it says nothing, and filters that
/// negate them match nobody whose snapshot lacks segments.
pub const SNAPSHOT_QUERIED: usize = 2_000;
/// Minutes of page views, and of purchases, that a snapshot holds of each visitor: the newest.
pub const SNAPSHOT_EVENT_MINUTES: usize = 32;

/// Advertisers, campaigns, ad groups and ads of one tenant's catalogue, of each sort.
pub const CATALOGUE_ROWS: usize = 10_000;
/// Longest catalogue, in bytes of JSON: no more is unpacked from a value, and no longer document is taken.
pub const CATALOGUE_BYTES: usize = 8 * 1024 * 1024;
/// Catalogues that an isolate has, of all tenants, in bytes of JSON: in its memory each takes a few times as much, and there are
/// 128 MB.
pub const CATALOGUES_BYTES: usize = 2 * CATALOGUE_BYTES;
/// Longest value of a catalogue in the KV, in characters.
pub const CATALOGUE_CHARS: usize = 4 * 1024 * 1024;
/// How long an isolate goes by the pointer that it read last, in milliseconds.
pub const CATALOGUE_FRESH_MS: u64 = 30_000;
/// How long it does after a read that failed or gave nothing to use, in milliseconds.
pub const CATALOGUE_RETRY_MS: u64 = 5_000;
/// Versions of a catalogue that stay in the KV, the newest, and the current one.
pub const CATALOGUE_VERSIONS: u32 = 3;
/// How long an older one stays after it was replaced, in milliseconds (one day): an isolate may have read its pointer.
pub const CATALOGUE_KEEP_MS: u64 = 86_400_000;
/// Longest id of an advertiser, campaign, ad group or ad, in bytes.
pub const CATALOGUE_ID_BYTES: usize = 64;
/// Largest bid, in micros: a million of the currency.
pub const BID_MICROS: i64 = 1_000_000_000_000;
/// Largest budget, in micros: a billion of the currency.
pub const BUDGET_MICROS: i64 = 1_000_000_000_000_000;
/// Longest name of a time zone, in bytes.
pub const TIME_ZONE_BYTES: usize = 64;
/// Categories of one campaign.
pub const CATEGORIES: usize = 8;
/// Caps of one advertiser, campaign, ad group or ad.
pub const CAPS: usize = 8;
/// Different pairs of action and window over all caps of one catalogue: each costs a request one pass over its actions.
pub const CAP_QUESTIONS: usize = 32;
/// Largest limit of a cap.
pub const CAP_LIMIT: u32 = 10_000;
/// Longest window of a cap, in days: a snapshot holds no older actions.
pub const CAP_DAYS: u16 = 30;
/// Longest creative, in bytes of JSON.
pub const CREATIVE_BYTES: usize = 8 * 1024;
/// Largest weight of an ad.
pub const WEIGHT: u32 = 1_000_000;
/// Placings that one visitor's object of strict caps holds; one that is full grants nothing.
pub const STRICT_ENTRIES: usize = 1_024;
/// Visitors of a person that a call of such an object names: those of a snapshot, and those a lookup adds.
pub const STRICT_MEMBERS: usize = 64;
/// Ads under strict caps that one call asks for.
pub const STRICT_CANDIDATES: usize = 64;
/// Impressions of a snapshot that one call names, the newest.
pub const STRICT_SEEN: usize = 1_024;

/// Recipients of one campaign at most.
pub const RECIPIENTS: u32 = 1_000_000_000;
/// Campaigns of which a profile keeps the unit: the greatest codes.
pub const UNITS: usize = 32;

/// Experiments of one tenant's catalogue, and those of which a profile keeps the exposure: the greatest codes.
pub const EXPERIMENTS: usize = 32;
/// Arms of one experiment.
pub const EXPERIMENT_ARMS: usize = 16;
/// Conversions kept one by one of a visitor: the newest.
pub const CONVERSIONS: usize = 1_000;
/// Days a conversion is kept: those of an experiment that runs for a year, and of the month after it.
pub const CONVERSION_DAYS: u64 = 400;

/// Segments kept of one visitor, removed ones among them: those written last.
pub const SEGMENTS: usize = 10_000;
/// Attributes of one segment (seed 2).
pub const SEGMENT_ATTRIBUTES: usize = 4;
/// Hours from 2019 to the end of 2100: the last expiry.
pub const EXPIRY_HOURS: u32 = 718_800;
/// Segments that one fact writes.
pub const SEGMENT_WRITES: usize = 1_000;

/// Attributes kept of one visitor, removed ones among them: those written last.
pub const ATTRIBUTES: usize = 256;
/// Longest string of an attribute's value, in bytes.
pub const ATTRIBUTE_BYTES: usize = 256;
/// Strings of one attribute's value.
pub const ATTRIBUTE_STRINGS: usize = 32;
/// Longest name of an attribute, in bytes.
pub const ATTRIBUTE_NAME_BYTES: usize = 64;
/// Attributes that one fact writes.
pub const ATTRIBUTE_WRITES: usize = 64;
/// Bytes that one visitor's attributes have in a snapshot, packed: the newest that fit.
pub const SNAPSHOT_ATTRIBUTES: usize = 8 * 1024;
/// Names of attributes of one tenant.
pub const ATTRIBUTE_NAMES: usize = 10_000;
/// The last of them, which pages do not get.
pub const ATTRIBUTE_NAMES_RESERVED: usize = 1_000;
/// New names that pages of one visitor bring on one day, and pages of a whole tenant: nobody uses the others up at
/// once.
pub const ATTRIBUTE_NAMES_A_VISITOR: usize = 64;
/// See [`ATTRIBUTE_NAMES_A_VISITOR`].
pub const ATTRIBUTE_NAMES_A_DAY: usize = 2_000;
/// How long a token rests after its name was taken back and the last value left the store, in milliseconds (one day):
/// by then no snapshot in the KV or at the edge holds a value that a new name of the token would show.
pub const ATTRIBUTE_REST_MS: u64 = 86_400_000;
/// Names of attributes that one request takes back: one pass over all profiles removes their values.
pub const ATTRIBUTE_NAMES_FORGOTTEN: usize = 1_000;
/// New names that one call of a page brings.
pub const ATTRIBUTE_NAMES_A_CALL: usize = 64;
/// Names in one page of the dictionary.
pub const ATTRIBUTE_PAGE: usize = 1_000;
/// Pages of the dictionary at most.
pub const ATTRIBUTE_PAGES: usize = ATTRIBUTE_NAMES.div_ceil(ATTRIBUTE_PAGE);
/// Dates from 0001-01-01 to 9999-12-31, in days since 1970-01-01.
pub const DATE_DAYS: RangeInclusive<i32> = -719_162..=2_932_896;

/// Levels of a filter: documents and `$not`s inside each other, the filter itself the first.
pub const FILTER_DEPTH: usize = 8;
/// Conditions of one filter, each operator one.
pub const FILTER_CONDITIONS: usize = 64;
/// Values of one list in a filter.
pub const FILTER_LIST: usize = 256;
/// Texts of one filter, in bytes, all together.
pub const FILTER_TEXT_BYTES: usize = 16 * 1024;
/// Different values of an attribute of texts that columns tell apart; of those that come later the store is asked.
pub const AUDIENCE_TEXTS: usize = 65_000;
/// Names of events of one tenant that audiences count, besides `page` and `purchase`: each takes two columns. Of others
/// the store is asked.
pub const AUDIENCE_EVENTS: usize = 1_000;
/// New names among them that pages of one visitor bring on one day, and pages of a whole tenant: strangers cannot use all
/// of them up at once.
pub const AUDIENCE_EVENTS_A_VISITOR: usize = 16;
/// See [`AUDIENCE_EVENTS_A_VISITOR`].
pub const AUDIENCE_EVENTS_A_DAY: usize = 200;
/// Names of events that one request declares or takes back.
pub const AUDIENCE_EVENTS_CHANGED: usize = AUDIENCE_EVENTS;
/// Hours of a window in which people are to be reached, and until it begins.
pub const SCHEDULE_HOURS: u32 = 8_784;
/// Limited offers that an isolate knows to be given out before the origin says so.
pub const EMPTY_OFFERS: usize = 1_000;
/// Different windows in which the targetings of one catalogue count actions, and as many of events: each costs a request one
/// pass over them.
pub const TARGET_WINDOWS: usize = 32;
/// What all of them count, by verb, window and ad or what it belongs to.
pub const TARGET_COUNTS: usize = 4_096;
/// Hours that a member of an audience kept as a segment is in it at most, from each write of it: a year.
pub const AUDIENCE_HOURS: u32 = 8_784;
/// Audiences that a tenant keeps as segments.
pub const AUDIENCES: usize = 100;
/// People of one send.
pub const SEND_PEOPLE: u32 = 1_000_000;
/// Sends of a tenant.
pub const SENDS: usize = 1_000;
/// How many people a second a send is told to at most, where it says.
pub const SEND_PER_SECOND: u32 = 100_000;
/// Longest URL of a webhook, in bytes.
pub const WEBHOOK_BYTES: usize = 2_048;
/// Precision that may be asked of an estimate: half an interval's width, as a share of all people. The finest takes everybody
/// of up to a billion people; a coarser one says nothing.
pub const PRECISION: RangeInclusive<f64> = 0.000_01..=0.5;
/// Segments that are features of a model.
pub const MODEL_SEGMENTS: usize = 256;
/// Longest form of a model, in bytes: three parts of 16,384 weights.
pub const MODEL_BYTES: usize = 160 * 1024;
/// Longest value of a model in the KV, in characters.
pub const MODEL_CHARS: usize = 220 * 1024;
/// Longest value of the steering in the KV, in characters: paces of 10,000 campaigns that are given out as well.
pub const STEERING_CHARS: usize = 360 * 1024;
/// Longest reason of a change in the audit trail, in characters; no name in it is longer either.
pub const REASON_CHARS: usize = 200;
/// Longest short text of an export, such as a name, in bytes.
pub const EXPORT_TEXT_BYTES: usize = 4 * 1024;
/// Longest other value of an export, in bytes: a catalogue's document with its codes is the longest.
pub const EXPORT_BYTES: usize = 16 * 1024 * 1024;
/// Longest line of an export, in bytes.
pub const EXPORT_LINE_BYTES: usize = 4 * EXPORT_BYTES;
