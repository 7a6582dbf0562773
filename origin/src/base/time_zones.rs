//! Time zones by IANA name. The only module that reads the database of their rules, which is built in.

use std::ops::Range;

use causeway_shared::base::ids::Millis;
use causeway_shared::base::limits;
use causeway_shared::profiles::activity::{UtcOffset, ZoneOffsets};
use jiff::Timestamp;
use jiff::tz::{self, TimeZone};

use crate::base::integers::{signed, unsigned};

/// The zone with a name; `None` if there is none.
#[must_use]
pub fn find_zone(name: &str) -> Option<TimeZone> {
    if name.len() <= limits::TIME_ZONE_BYTES { TimeZone::get(name).ok() } else { None }
}

/// A zone's UTC offsets within a span of time, with the times of their changes. A time outside the span has the offset
/// of the nearer end.
#[must_use]
pub fn zone_offsets(zone: &TimeZone, span: Range<Millis>) -> ZoneOffsets {
    let first = to_timestamp(span.start);
    let changes = zone.following(first).map(|change| (unsigned(change.timestamp().as_millisecond()), change.offset()));
    let changes = changes.take_while(|(at, _)| *at < span.end).map(|(at, to)| (at, offset_minutes(to)));
    ZoneOffsets::new(offset_minutes(zone.to_offset(first)), changes.collect())
}

/// Local time in a zone, as `YYYY-MM-DDTHH:MM`.
#[must_use]
pub fn local_time(zone: &TimeZone, at: Millis) -> String {
    zone.to_datetime(to_timestamp(at)).strftime("%Y-%m-%dT%H:%M").to_string()
}

/// Parses a time: RFC 3339, or whole milliseconds since 1970.
#[must_use]
pub fn parse_time(text: &str) -> Option<Millis> {
    let rfc3339 = || Millis::try_from(text.parse::<Timestamp>().ok()?.as_millisecond()).ok();
    text.parse().ok().or_else(rfc3339)
}

fn to_timestamp(at: Millis) -> Timestamp {
    Timestamp::from_millisecond(signed(at)).unwrap_or(Timestamp::MAX)
}

/// Drops seconds, because no zone has used them since 1972.
fn offset_minutes(offset: tz::Offset) -> UtcOffset {
    UtcOffset::minutes(offset.seconds().div_euclid(60)).unwrap_or_default()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Berlin's clocks go forward at 2027-03-28T01:00Z, and back at 2027-10-31T01:00Z.
    const SPRING: Millis = 1_806_195_600_000;
    const AUTUMN: Millis = 1_824_944_400_000;

    #[test]
    fn offsets_follow_the_time_zone_and_its_clock_changes() {
        let offset = |minutes| UtcOffset::minutes(minutes).unwrap();
        let berlin = find_zone("Europe/Berlin").unwrap();
        let year = zone_offsets(&berlin, SPRING - 1..AUTUMN + 1);
        assert_eq!(year, ZoneOffsets::new(offset(60), vec![(SPRING, offset(120)), (AUTUMN, offset(60))]));
        assert_eq!(zone_offsets(&berlin, SPRING..AUTUMN), ZoneOffsets::from(offset(120)));
        assert_eq!(zone_offsets(&find_zone("Asia/Kolkata").unwrap(), 0..SPRING), ZoneOffsets::from(offset(330)));
        let far = zone_offsets(&find_zone("America/New_York").unwrap(), SPRING..SPRING + 20 * 365 * 86_400_000);
        assert_eq!(far.at(SPRING + 3 * 365 * 86_400_000), offset(-240));
        assert_eq!(
            (local_time(&berlin, SPRING - 60_000), local_time(&berlin, SPRING)),
            ("2027-03-28T01:59".into(), "2027-03-28T03:00".into())
        );
        assert_eq!(
            zone_offsets(&berlin, Millis::MAX - 1..Millis::MAX),
            ZoneOffsets::from(offset(60)),
            "beyond all calendars"
        );
    }

    #[test]
    fn names_and_times_that_are_none_are_refused() {
        assert!(find_zone("UTC").is_some() && find_zone("Mars/Olympus").is_none());
        assert!(find_zone("").is_none() && find_zone(&"x".repeat(1_000)).is_none());
        assert_eq!(parse_time("2027-03-28T03:00:00+02:00"), Some(SPRING));
        assert_eq!(
            (parse_time("1806195600000"), parse_time("tomorrow"), parse_time("1900-01-01T00:00:00Z")),
            (Some(SPRING), None, None)
        );
    }
}
