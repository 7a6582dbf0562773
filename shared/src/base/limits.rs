//! Every bound on outside input. A value over its bound is refused, never cut.

use std::ops::RangeInclusive;

use crate::base::money::Micros;

/// Longest request body the edge reads, in bytes.
pub const BODY_BYTES: usize = 64 * 1024;
/// Longest single header value the edge looks at, in bytes (the platform allows 128 KiB in total).
pub const HEADER_BYTES: usize = 16 * 1024;
/// Longest value of one of our own cookies, in bytes. Browsers store 4,096 for name and value.
pub const COOKIE_BYTES: usize = 3_072;
/// Longest raw alternate id, in bytes.
pub const ALTERNATE_ID_BYTES: usize = 256;
/// Alternate id kinds of a tenant. During a key rotation, each costs two lookups of one bulk read.
pub const KINDS: usize = 8;
/// Readable keys of one purpose: the active, the next and the previous one.
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
/// Facts of one call of `/v1/events`, in bytes of one queue message; the platform accepts 128 KB.
pub const EVENTS_FACT_BYTES: usize = 120_000;
/// Longest message id chosen by a client, in bytes.
pub const MESSAGE_ID_BYTES: usize = 128;
/// Longest JSON of one event's properties, in bytes.
pub const PROPERTIES_BYTES: usize = 4_096;
/// Largest amount of one event, in micros: a million million of the currency's unit.
pub const VALUE_MICROS: Micros = Micros::new(1_000_000_000_000_000_000);
/// Oldest time stamp of a client that is used, in milliseconds before the receive time (30 days).
pub const EVENT_AGE_MS: u64 = 30 * 86_400_000;
/// Longest consent string, in bytes.
pub const CONSENT_BYTES: usize = 4_096;
/// Longest member proof, in bytes.
pub const PROOF_BYTES: usize = 2_048;
/// Longest life of a member proof, in seconds (24 hours).
pub const PROOF_LIFE_S: u64 = 86_400;
/// Largest lead of a publisher's clock over ours, in seconds.
pub const PROOF_SKEW_S: u64 = 60;

/// Keys in one KV read, which is the platform's limit of a bulk read.
pub const KV_KEYS: usize = 100;
/// Longest snapshot, in bytes before text encoding.
pub const SNAPSHOT_BYTES: usize = 64 * 1024;
/// Longest KV value that the edge accepts, in characters: a full page of the longest attribute names in base64, with
/// checksum, form and tag. A snapshot has at most 87,392.
pub const KV_VALUE_CHARS: usize = (ATTRIBUTE_PAGE * (ATTRIBUTE_NAME_BYTES + 2) + 17).div_ceil(3) * 4 + 2;
/// Visitors whose newest snapshot version an isolate remembers; about 200 bytes each.
pub const SEEN_VISITORS: usize = 4_096;
/// Newest snapshots that an isolate stores; at most 4 MB.
pub const SEEN_SNAPSHOTS: usize = 64;
/// Time for which a stored snapshot replaces an older one, in milliseconds. After that, the newer one has reached all
/// of a KV location.
pub const SEEN_KEEP_MS: u64 = LEDGER_KEEP_MS;
/// Visitors of a person that one snapshot holds.
pub const SNAPSHOT_VISITORS: usize = 51;
/// Cuts that one membership names: the newest.
pub const CUTS: usize = 64;
/// Ids of newest facts in a sub-profile.
pub const NEWEST_FACTS: usize = 64;
/// Sessions that a profile names one by one; older ones are only counted.
pub const NEWEST_SESSIONS: usize = 8;
/// Visitors that one lookup names, last seen first.
pub const LOOKUP_VISITORS: usize = 3;

/// Pages in the ledger cookie. With this many, and [`RESERVATION_BYTES`] full, the cookie has at most
/// [`LEDGER_COOKIE_BYTES`].
pub const LEDGER_ENTRIES: usize = 24;
/// Packed reservations in the ledger cookie, in bytes. They hold the newest 52 of one ad, 27 of different ads
/// with usual codes, and 16 if every code has its greatest length.
pub const RESERVATION_BYTES: usize = 480;
/// Interval between updates of the traffic allocation and paces, in milliseconds.
pub const ALLOCATION_MS: u64 = 60_000;
/// Age up to which paces apply to campaigns with budgets, in milliseconds.
pub const ALLOCATION_STALE_MS: u64 = 600_000;
/// Exposures to experiments in the ledger cookie.
pub const LEDGER_EXPOSURES: usize = 8;
/// Offer codes in the ledger cookie.
pub const LEDGER_OFFER_CODES: usize = 4;
/// Longest ledger cookie, name and value, in bytes. Every request to the page's site carries it.
pub const LEDGER_COOKIE_BYTES: usize = 1_792;
/// Time for which a placed insertion counts as its impression, in milliseconds (10 minutes). After that, an ad that was
/// seen has its impression in every location's snapshot, because snapshots lag at most [`LEDGER_KEEP_MS`]. It is
/// checked in whole minutes, so it may last one minute longer.
pub const SERVE_WINDOW_MS: u64 = LEDGER_KEEP_MS;
/// Time for which a ledger entry stays after a snapshot contains it, in milliseconds: another location may still serve
/// an older snapshot.
pub const LEDGER_KEEP_MS: u64 = 10 * 60_000;
/// Life of the ledger cookie, in milliseconds (one day).
pub const LEDGER_LIFE_MS: u64 = 86_400_000;
/// Life of the identity cookie, in milliseconds (400 days, the browsers' maximum).
pub const IDENTITY_LIFE_MS: u64 = 400 * 86_400_000;
/// Earlier (member, visitor) pairs in the identity cookie.
pub const EARLIER_VISITORS: usize = 3;
/// Alternate ids whose lookups the identity cookie names as read.
pub const COVERED: usize = 8;
/// Siblings that the identity cookie names until the visitor's own snapshot names them.
pub const PENDING_SIBLINGS: usize = 3;
/// Idle time that ends a session, in milliseconds (30 minutes, the usual value in web analytics).
pub const SESSION_IDLE_MS: u64 = 30 * 60_000;

/// Facts in one sync batch.
pub const SYNC_FACTS: usize = 5_000;
/// Longest body of one sync, in bytes.
pub const SYNC_BYTES: usize = 4 * 1024 * 1024;
/// Total bytes of values after which one answer hands out no further KV write. An isolate has 128 MB and holds the
/// values five times over.
pub const PUBLISH_BYTES: usize = 2 * 1024 * 1024;
/// Outbox entries that one sync acknowledges or hands out.
pub const SYNC_PUBLISH: usize = 100;
/// Largest difference between the two clocks of a sync, in milliseconds (5 minutes).
pub const SYNC_SKEW_MS: u64 = 5 * 60_000;
/// Oldest fact that the origin accepts, by the edge's receive time, in milliseconds (30 days).
pub const FACT_AGE_MS: u64 = 30 * 86_400_000;
/// Time for which a FactId is stored, in milliseconds (35 days). It exceeds [`FACT_AGE_MS`], so that no fact counts
/// twice.
pub const FACT_ID_KEEP_MS: u64 = FACT_AGE_MS + 5 * 86_400_000;
/// Largest lead of a fact's receive time over the origin's clock, in milliseconds. It exceeds [`SYNC_SKEW_MS`], because
/// an accepted sync may carry facts from another location, whose clock differs too.
pub const FACT_AHEAD_MS: u64 = 2 * SYNC_SKEW_MS;
/// Visitors in the neighbourhood of changed evidence that one step examines. In a larger neighbourhood the people stay
/// unchanged, and `reconcile` reports it.
pub const AROUND_VISITORS: usize = 10_000;
/// Visitors of a person that a count reads, or that its attributes and segments are read from.
pub const PERSON_VISITORS: usize = 100_000;
/// Visitors of a unique id above which one representative stands for all.
pub const LARGE: u32 = 100;
/// Alternate ids of a visitor above which a further id from a page is not stored, unless it is a login.
pub const VISITOR_IDS: usize = 1_000;
/// Visitors of an id above which it is an oversized group, for kinds that set no bound of their own.
pub const GROUP_LIMIT: u32 = 1_000;
/// Largest bound on visitors of an id that a kind may set.
pub const GROUP_LIMIT_MOST: u32 = 10_000;

/// Queues of facts. With 16, the platform takes 80,000 messages a second.
pub const FACTS_QUEUES: u32 = 16;
/// Tenants in one configuration.
pub const TENANTS: usize = 1_000;
/// Hosts and origins of one tenant.
pub const HOSTS: usize = 256;

/// Life of an ad's click and pixel addresses after its placement, in milliseconds (one day).
pub const TOKEN_LIFE_MS: u64 = 86_400_000;

/// Life of a visitor token, in milliseconds: the age up to which a fact is accepted.
pub const VISITOR_TOKEN_LIFE_MS: u64 = FACT_AGE_MS;

/// Newest orders stored per visitor. For an older order, a repetition from another browser is no longer recognised.
pub const ORDERS: usize = 256;

/// Ads that a decide call may name as already shown on the page.
pub const SHOWN: usize = 200;

/// Visitors that the tokens of one event call may name, in addition to the visitor of its cookie.
pub const EVENTS_VISITORS: usize = 16;

/// Newest actions stored per visitor.
pub const ACTIONS: usize = 10_000;
/// Days for which an action is stored, including today.
pub const ACTION_DAYS: u16 = 90;
/// Event names stored per visitor.
pub const EVENT_NAMES: usize = 64;
/// Newest minutes stored per event name; they answer windows of minutes and hours.
pub const EVENT_MINUTES: usize = 64;
/// UTC days stored per event name: the longest window and one more, because an edge's clock may lead the origin's.
pub const EVENT_DAYS: usize = ACTION_DAYS as usize + 1;
/// Groups in the answer of a general count query.
pub const GROUPS: usize = 10_000;
/// Days of actions in a snapshot; the next smaller value applies while the snapshot has too many bytes.
pub const SNAPSHOT_WINDOWS: [u16; 4] = [CAP_DAYS + 1, 14, 7, 1];
/// Segments named by filters that a snapshot contains before other segments. If there are more, the rest is unknown:
/// filters that negate them match no person whose snapshot lacks segments.
pub const SNAPSHOT_QUERIED: usize = 2_000;
/// Newest minutes of page views, and of purchases, per visitor in a snapshot.
pub const SNAPSHOT_EVENT_MINUTES: usize = 32;

/// Rows of one tenant's catalogue, for each of advertisers, campaigns, ad groups and ads.
pub const CATALOGUE_ROWS: usize = 10_000;
/// Longest catalogue, in bytes of JSON, both for a document and for a value unpacked from the KV.
pub const CATALOGUE_BYTES: usize = 8 * 1024 * 1024;
/// Catalogues of all tenants in one isolate, in bytes of JSON. In memory each takes several times as much, of 128 MB.
pub const CATALOGUES_BYTES: usize = 2 * CATALOGUE_BYTES;
/// Longest catalogue value in the KV, in characters.
pub const CATALOGUE_CHARS: usize = 4 * 1024 * 1024;
/// Time for which an isolate uses a pointer that it has read, in milliseconds.
pub const CATALOGUE_FRESH_MS: u64 = 30_000;
/// Time for which an isolate uses its pointer after a read that failed or returned nothing usable, in milliseconds.
pub const CATALOGUE_RETRY_MS: u64 = 5_000;
/// Newest catalogue versions that stay in the KV; the current one is normally among them.
pub const CATALOGUE_VERSIONS: u32 = 3;
/// Time for which an older version stays after it was replaced, in milliseconds (one day): an isolate may have read its
/// pointer.
pub const CATALOGUE_KEEP_MS: u64 = 86_400_000;
/// Longest id of an advertiser, campaign, ad group or ad, in bytes.
pub const CATALOGUE_ID_BYTES: usize = 64;
/// Largest bid, in micros: a million of the currency.
pub const BID_MICROS: Micros = Micros::new(1_000_000_000_000);
/// Largest budget, in micros: a billion of the currency.
pub const BUDGET_MICROS: Micros = Micros::new(1_000_000_000_000_000);
/// Longest name of a time zone, in bytes.
pub const TIME_ZONE_BYTES: usize = 64;
/// Categories of one campaign.
pub const CATEGORIES: usize = 8;
/// Caps of one advertiser, campaign, ad group or ad.
pub const CAPS: usize = 8;
/// Different pairs of action type and window over all caps of a catalogue. Each costs a request one pass over the
/// actions.
pub const CAP_QUESTIONS: usize = 32;
/// Largest limit of a cap.
pub const CAP_LIMIT: u32 = 10_000;
/// Longest window of a cap, in days. A snapshot holds no older actions.
pub const CAP_DAYS: u16 = 30;
/// Longest creative, in bytes of JSON.
pub const CREATIVE_BYTES: usize = 8 * 1024;
/// Largest weight of an ad.
pub const WEIGHT: u32 = 1_000_000;
/// Placements that one visitor's strict-cap object stores. A full object grants nothing.
pub const STRICT_ENTRIES: usize = 1_024;
/// Visitors of a person in a call of a strict-cap object: the snapshot's, and those that a lookup adds.
pub const STRICT_MEMBERS: usize = 64;
/// Ads under strict caps that one call asks for.
pub const STRICT_CANDIDATES: usize = 64;
/// Newest impressions of a snapshot that one call names.
pub const STRICT_SEEN: usize = 1_024;

/// Recipients (offer codes) of one limited offer.
pub const RECIPIENTS: u32 = 1_000_000_000;
/// Campaigns whose offer code a profile stores: the greatest codes.
pub const OFFER_CODES: usize = 32;

/// Experiments of one tenant's catalogue, and experiments whose exposure a profile stores: the greatest codes.
pub const EXPERIMENTS: usize = 32;
/// Arms of one experiment.
pub const EXPERIMENT_ARMS: usize = 16;
/// Newest conversions stored one by one per visitor.
pub const CONVERSIONS: usize = 1_000;
/// Days for which a conversion is stored: an experiment of one year, and the month after it.
pub const CONVERSION_DAYS: u64 = 400;

/// Segments stored per visitor, removed ones included: the last written.
pub const SEGMENTS: usize = 10_000;
/// Attributes of one segment.
pub const SEGMENT_ATTRIBUTES: usize = 4;
/// Last expiry of a segment, at the end of 2100, in hours since 2019.
pub const EXPIRY_HOURS: u32 = 718_800;
/// Segments that one fact writes.
pub const SEGMENT_WRITES: usize = 1_000;

/// Attributes stored per visitor, removed ones included: the last written.
pub const ATTRIBUTES: usize = 256;
/// Longest string in an attribute's value, in bytes.
pub const ATTRIBUTE_BYTES: usize = 256;
/// Strings in one attribute's value.
pub const ATTRIBUTE_STRINGS: usize = 32;
/// Longest name of an attribute, in bytes.
pub const ATTRIBUTE_NAME_BYTES: usize = 64;
/// Attributes that one fact writes.
pub const ATTRIBUTE_WRITES: usize = 64;
/// Packed attributes of one visitor in a snapshot, in bytes: the newest that fit.
pub const SNAPSHOT_ATTRIBUTES: usize = 8 * 1024;
/// Attribute names of one tenant.
pub const ATTRIBUTE_NAMES: usize = 10_000;
/// The last of [`ATTRIBUTE_NAMES`], which pages cannot create.
pub const ATTRIBUTE_NAMES_RESERVED: usize = 1_000;
/// New attribute names per UTC day from pages of one visitor. With [`ATTRIBUTE_NAMES_A_DAY`], no visitor can use up the
/// tenant's names at once.
pub const ATTRIBUTE_NAMES_A_VISITOR: usize = 64;
/// New attribute names per UTC day from all pages of a tenant.
pub const ATTRIBUTE_NAMES_A_DAY: usize = 2_000;
/// Time for which a token is not reused after its name was taken back and its last value left the store, in
/// milliseconds (one day). After that, no snapshot in the KV or at the edge holds a value under the token.
pub const ATTRIBUTE_REST_MS: u64 = 86_400_000;
/// Attribute names that one request takes back. One pass over all profiles removes their values.
pub const ATTRIBUTE_NAMES_FORGOTTEN: usize = 1_000;
/// New attribute names that one call from a page creates.
pub const ATTRIBUTE_NAMES_A_CALL: usize = 64;
/// Attribute names in one page of the dictionary.
pub const ATTRIBUTE_PAGE: usize = 1_000;
/// Pages of the dictionary.
pub const ATTRIBUTE_PAGES: usize = ATTRIBUTE_NAMES.div_ceil(ATTRIBUTE_PAGE);
/// Dates from 0001-01-01 to 9999-12-31, in days since 1970-01-01.
pub const DATE_DAYS: RangeInclusive<i32> = -719_162..=2_932_896;

/// Nesting of a filter: documents and `$not`, counted from 1 for the filter itself.
pub const FILTER_DEPTH: usize = 8;
/// Conditions of one filter; each operator is one.
pub const FILTER_CONDITIONS: usize = 64;
/// Values of one list in a filter.
pub const FILTER_LIST: usize = 256;
/// Total length of all texts of one filter, in bytes.
pub const FILTER_TEXT_BYTES: usize = 16 * 1024;
/// Distinct texts of an attribute that the audience index tells apart. For later ones the store is queried.
pub const AUDIENCE_TEXTS: usize = 65_000;
/// Event names of one tenant that the audience index counts, in addition to `page` and `purchase`. Each takes two
/// columns. For other names the store is queried.
pub const AUDIENCE_EVENTS: usize = 1_000;
/// New names in the audience index per UTC day from pages of one visitor. With [`AUDIENCE_EVENTS_A_DAY`], no visitor
/// can use up all names at once.
pub const AUDIENCE_EVENTS_A_VISITOR: usize = 16;
/// New names in the audience index per UTC day from all pages of a tenant.
pub const AUDIENCE_EVENTS_A_DAY: usize = 200;
/// Event names that one request declares or takes back.
pub const AUDIENCE_EVENTS_CHANGED: usize = AUDIENCE_EVENTS;
/// Length of a delivery window, and of the time until it begins, in hours.
pub const SCHEDULE_HOURS: u32 = 8_784;
/// Limited offers that an isolate remembers as sold out, until the origin reports it.
pub const EMPTY_OFFERS: usize = 1_000;
/// Different windows over actions in the targetings of a catalogue, and the same number over events. Each costs a
/// request one pass over them.
pub const TARGET_WINDOWS: usize = 32;
/// Counts that all targetings of a catalogue need, by action type, window, and ad or its parent.
pub const TARGET_COUNTS: usize = 4_096;
/// Longest stay in a materialised audience after each write of the membership, in hours (366 days).
pub const AUDIENCE_HOURS: u32 = 8_784;
/// Materialised audiences of one tenant.
pub const AUDIENCES: usize = 100;
/// People of one send.
pub const SEND_PEOPLE: u32 = 1_000_000;
/// Sends of a tenant.
pub const SENDS: usize = 1_000;
/// Largest rate that a send may set, in people per second.
pub const SEND_PER_SECOND: u32 = 100_000;
/// Longest URL of a webhook, in bytes.
pub const WEBHOOK_BYTES: usize = 2_048;
/// Precision of an estimate: half the interval's width, as a share of all people. The finest reads all of up to a
/// billion people; a coarser one would be useless.
pub const PRECISION: RangeInclusive<f64> = 0.000_01..=0.5;
/// Segments that are features of one model.
pub const MODEL_SEGMENTS: usize = 256;
/// Longest binary form of a model, in bytes: three parts of 16,384 weights.
pub const MODEL_BYTES: usize = 160 * 1024;
/// Longest model value in the KV, in characters.
pub const MODEL_CHARS: usize = 220 * 1024;
/// Longest value of traffic allocation and paces in the KV, in characters: paces of 10,000 campaigns, all of them
/// sold-out offers.
pub const ALLOCATION_CHARS: usize = 360 * 1024;
/// Longest reason of a change in the audit trail, and longest name in it, in characters.
pub const REASON_CHARS: usize = 200;
/// Longest short text of an export, such as a name, in bytes.
pub const EXPORT_TEXT_BYTES: usize = 4 * 1024;
/// Longest other value of an export, in bytes: a catalogue's document with its codes.
pub const EXPORT_BYTES: usize = 16 * 1024 * 1024;
/// Longest line of an export, in bytes.
pub const EXPORT_LINE_BYTES: usize = 4 * EXPORT_BYTES;
