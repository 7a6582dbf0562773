//! People with known habits, over weeks with clock changes, through the store.
#![expect(clippy::unwrap_used, reason = "tests")]

use crate::store::PersonNo;
use causeway_shared::base::ids::{SnapshotVersion, VisitorId};
use causeway_shared::base::time::{DAY_MS, HOUR_MS};
use causeway_shared::facts::fact::{Fact, FactKind};
use jiff::civil;

use super::*;
use crate::audience::schedule::{SendMoment, send_moments};
use crate::kv::value;
use crate::outbox::kv_key::KvKey;
use crate::testing::{NOW, Origin, fact, page, snapshot, visitor};

const WEEK_MS: u64 = 7 * DAY_MS;

/// A local time in 2027; day 0 is Monday, 22 February. Summer time begins five weeks later in Berlin and three weeks
/// later in New York.
fn clock(zone: &str, day: i64, hour: i8, minute: i8) -> Millis {
    let date = civil::date(2027, 2, 22).checked_add(jiff::Span::new().days(day)).unwrap();
    let at = date.at(hour, minute, 0, 0).to_zoned(time_zones::find_zone(zone).unwrap()).unwrap();
    at.timestamp().as_millisecond().cast_unsigned()
}

fn berlin(day: i64, hour: i8, minute: i8) -> Millis {
    clock("Europe/Berlin", day, hour, minute)
}

const ANN: u32 = 1;
const BEN: u32 = 2;
const CAI: u32 = 3;
const DEE: [u32; 2] = [4, 5];
const EVE: u32 = 6;
const FAY: u32 = 7;
/// Visitors with three page views each.
const OTHERS: std::ops::Range<u32> = 100..180;
/// Number of days: five weeks of winter time and two of summer time.
const DAYS: i64 = 49;

fn says(of: u32, at: Millis, zone: &str) -> Fact {
    let writes = vec![(ZONE.to_owned(), Some(AttributeValue::String(zone.to_owned())))];
    fact(visitor(of), 1, at, FactKind::Attributes { writes })
}

/// All facts of one day.
fn day(origin: &Origin, day: i64) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut views = |of: u32, at: Millis, times: u64| {
        let n = u32::try_from(at / 60_000 % 10_000_000).unwrap();
        facts
            .extend((0..times).map(|more| page(visitor(of), n * 10 + u32::try_from(more).unwrap(), at + more * 1_000)));
    };
    // Ann views a page every evening and sometimes at other hours; Ben on Sundays after ten.
    views(ANN, berlin(day, 20, 30), 1);
    views(ANN, berlin(day, i8::try_from(day * 5 % 24).unwrap(), 10), u64::from(day % 5 == 0));
    views(BEN, berlin(day, 10, 20), if day % 7 == 6 { 6 } else { 0 });
    // Cai's attribute names New York: weekday mornings.
    views(CAI, clock("America/New_York", day, 7, 15), u64::from(day % 7 < 5));
    // Dee's first browser is active at nine, the second at 23, and both at 13.
    for (dee, own) in DEE.into_iter().zip([9, 23]) {
        views(dee, berlin(day, own, 30), 1);
        views(dee, berlin(day, 13, 30), 1);
    }
    // Eve has one view. The others have three: one on a Tuesday evening, two at other times on two days.
    views(EVE, berlin(day, 4, 0), u64::from(day == 3));
    views(FAY, berlin(day, 6, 40), u64::from(day < DAYS - 14));
    for n in OTHERS {
        let any = i64::from(n) * 5 % DAYS;
        views(n, berlin(day, 18, 5), u64::from(day == i64::from(n) % 7 * 7 + 1));
        views(
            n,
            berlin(day, i8::try_from(8 + n * 7 % 15).unwrap(), 40),
            u64::from(day == any || day == (any + 17) % DAYS),
        );
    }
    match day {
        0 => facts.extend([
            says(CAI, berlin(0, 1, 0), "America/New_York"),
            says(EVE, berlin(0, 1, 0), "Mars/Olympus"),
            origin.login(visitor(DEE[0]), 2, berlin(0, 1, 0), "dee"),
            origin.login(visitor(DEE[1]), 2, berlin(0, 1, 0), "dee"),
        ]),
        // Fay names an unknown time zone here, and a valid one in a later test.
        20 => facts.push(says(FAY, berlin(20, 1, 0), "nowhere")),
        _ => {}
    }
    facts.sort_by_key(|fact| fact.received);
    facts
}

fn world() -> Origin {
    let mut origin = Origin::new();
    origin.live_in("demo", "Europe/Berlin");
    for n in 0..DAYS {
        origin.now = berlin(n + 1, 2, 0);
        let facts = day(&origin, n);
        assert_eq!(origin.send("demo", &facts).accepted, facts.len() as u64);
    }
    origin
}

fn sum(origin: &Origin, most: u32) -> PopulationActivity {
    let (mut sums, mut cursor) = (ActivitySums::default(), PersonNo(0));
    while let Some(last) = sums.add(&origin.conn, &origin.rules.tenants, cursor, most).unwrap() {
        cursor = last;
    }
    assert_eq!(sums.people, 6 + u64::try_from(OTHERS.len()).unwrap());
    sums.keep(&origin.conn, origin.now).unwrap();
    TenantHabits::load(&origin.conn, origin.tenant("demo")).unwrap().population
}

fn next(origin: &Origin, of: u32, window: Range<Millis>) -> SendMoment {
    let mut all = send_moments(&origin.conn, origin.tenant("demo"), &[visitor(of)], &window, origin.now).unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

#[test]
fn people_with_habits_get_their_hour_in_local_time() {
    let origin = world();
    sum(&origin, 1_000);
    // Monday of the third week of summer time, two o'clock at night.
    let now = origin.now;
    assert_eq!(now, berlin(DAYS, 2, 0));
    let week = now..now + WEEK_MS;
    let ann = next(&origin, ANN, week.clone());
    assert_eq!((&ann.local[11..], ann.time_zone.as_str()), ("20:00", "Europe/Berlin"));
    assert!(ann.best && ann.source == BestSendTimeSource::Person && ann.confidence >= 80, "{ann:?}");
    assert_eq!(ann.at_ms % DAY_MS, 18 * HOUR_MS, "summer time");
    let ben = next(&origin, BEN, week.clone());
    assert_eq!((ben.at_ms, ben.local.as_str(), ben.best), (berlin(DAYS + 6, 10, 0), "2027-04-18T10:00", true));
    let cai = next(&origin, CAI, week.clone());
    assert_eq!((&cai.local[11..], cai.time_zone.as_str()), ("07:00", "America/New_York"));
    assert!(cai.best && cai.at_ms % DAY_MS == 11 * HOUR_MS && cai.source == BestSendTimeSource::Person, "{cai:?}");
    let dee = next(&origin, DEE[0], week.clone());
    assert_eq!((&dee.local[11..], dee.best, dee.person), ("13:00", true, visitor(DEE[0])), "of both browsers");
    // Dee's second browser is not the oldest visitor of its person.
    let tenant = origin.tenant("demo");
    let none = send_moments(&origin.conn, tenant, &[visitor(DEE[1]), visitor(99)], &week, now).unwrap();
    assert_eq!(none, []);
    // A window without the best hour gives the best moment in the window.
    let early = next(&origin, BEN, now..now + 3 * HOUR_MS);
    assert!(!early.best && (now..now + 3 * HOUR_MS).contains(&early.at_ms), "{early:?}");
    // A window that began earlier is searched from now on.
    let inside = next(&origin, BEN, berlin(DAYS + 6, 10, 0)..berlin(DAYS + 7, 0, 0));
    assert_eq!(inside.at_ms, ben.at_ms);
}

#[test]
fn a_person_with_few_facts_gets_the_hour_of_all_people() {
    let origin = world();
    let week = origin.now..origin.now + WEEK_MS;
    let unknown = next(&origin, EVE, week.clone());
    assert_eq!((unknown.source, unknown.confidence), (BestSendTimeSource::Population, 0));
    let population = sum(&origin, 1_000);
    assert_eq!(population, sum(&origin, 7), "in parts as in one");
    let best = population.hours().iter().enumerate().max_by_key(|(_, most)| **most).unwrap();
    assert_eq!(best.0, 24 + 18, "Tuesdays at 18 by their clocks");
    for few in [EVE, OTHERS.start, OTHERS.end - 1] {
        let moment = next(&origin, few, week.clone());
        assert_eq!((moment.source, moment.confidence, moment.best), (BestSendTimeSource::Population, 0, true));
        assert_eq!((moment.at_ms, moment.time_zone.as_str()), (berlin(DAYS + 1, 18, 0), "Europe/Berlin"), "{few}");
    }
    // Another tenant has no activity.
    let other = TenantHabits::load(&origin.conn, origin.tenant("other")).unwrap();
    assert_eq!(other.population, PopulationActivity::default());
}

#[test]
fn an_unknown_time_zone_leaves_the_tenants_and_the_newest_write_counts() {
    let mut origin = world();
    let week = origin.now..origin.now + WEEK_MS;
    let fay = next(&origin, FAY, week.clone());
    assert_eq!((&fay.local[11..], fay.time_zone.as_str()), ("06:00", "Europe/Berlin"));
    let moved = Fact { at: NOW, ..says(FAY, origin.now, "Asia/Kolkata") };
    let moved =
        Fact { id: causeway_shared::base::ids::FactId::of_message(visitor(FAY), "moved"), at: origin.now, ..moved };
    origin.send("demo", &[moved]);
    let fay = next(&origin, FAY, week);
    // 06:00 in Berlin's winter time is 10:30 in India.
    assert_eq!((&fay.local[11..], fay.time_zone.as_str(), fay.best), ("10:30", "Asia/Kolkata", true));
}

#[test]
fn a_snapshot_holds_the_best_send_time_of_its_person_and_stays_with_it() {
    let mut origin = world();
    sum(&origin, 1_000);
    let mut kv = BTreeMap::new();
    let all = [ANN, BEN, CAI, DEE[0], DEE[1], EVE, OTHERS.start];
    let news = |at: Millis| all.map(|of| page(visitor(of), u32::try_from(at % 1_000_003).unwrap(), at));
    origin.send("demo", &news(origin.now));
    origin.settle(&mut kv);
    let best =
        |kv: &BTreeMap<String, String>, of: u32| snapshot(kv, visitor(of)).best.map(|best| best.utc_hour_of_week);
    // Ben is active on Sundays at ten, which is 08:00 UTC in summer time; Dee on both browsers at 13.
    assert_eq!(best(&kv, BEN), Some(6 * 24 + 8));
    assert_eq!(best(&kv, DEE[0]).map(|hour| hour % 24), Some(11));
    assert_eq!(best(&kv, DEE[0]), best(&kv, DEE[1]));
    assert_eq!([best(&kv, ANN), best(&kv, CAI)].map(|hour| hour.map(|hour| hour % 24)), [Some(18), Some(11)]);
    assert_eq!(
        [best(&kv, EVE), best(&kv, OTHERS.start)],
        [None, None],
        "the hour of all people is not published as a person's own"
    );

    // The histogram of all people changed, but no published value did.
    let built = |origin: &Origin| {
        let (of, subject) = (origin.row("demo", visitor(BEN)), KvKey::Snapshot(visitor(BEN)));
        let version = SnapshotVersion { restore: of.version.restore, counter: of.published.unwrap() };
        value::build(&origin.conn, origin.tenant("demo"), subject, version, origin.now).unwrap().value
    };
    let before = built(&origin);
    assert_eq!(before.as_ref(), kv.get(&value::key_text(origin.tenant("demo"), KvKey::Snapshot(visitor(BEN)))));
    origin.now += 30 * WEEK_MS;
    origin.conn.execute("DELETE FROM activity_histograms", []).unwrap();
    assert_eq!(built(&origin), before);
}

#[test]
fn without_any_facts_no_person_has_a_best_send_time() {
    let mut origin = Origin::new();
    let nobody: VisitorId = visitor(1);
    let window = origin.now..origin.now + WEEK_MS;
    assert_eq!(send_moments(&origin.conn, origin.tenant("demo"), &[nobody], &window, origin.now).unwrap(), []);
    origin.send("demo", &[page(nobody, 1, NOW)]);
    let one = next(&origin, 1, window);
    assert_eq!(
        (one.local.as_str(), one.source),
        ("2027-01-18T00:00", BestSendTimeSource::Population),
        "the week's first hour"
    );
}
