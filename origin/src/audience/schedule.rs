//! Best send times: each member's best moment within a window.

use std::ops::Range;

use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::time::HOUR_MS;
use causeway_shared::profiles::activity::BestSendTimeSource;
use rusqlite::{Connection, OptionalExtension as _};

use crate::audience::best_send_times::{self, TenantHabits};
use crate::audience::query::MemberFormat;
use crate::base::time_zones;
use crate::store::tables::visitors;
use crate::store::tenants::TenantContext;
use crate::store::{PersonNo, StoreError};

/// Best moment of a member within the window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendMoment {
    /// Its oldest visitor.
    pub person: VisitorId,
    /// The moment, in milliseconds since 1970.
    pub at_ms: Millis,
    /// Local time of the moment.
    pub local: String,
    /// The person's time zone.
    pub time_zone: String,
    /// Whether the moment is in the person's best hour of the week. Otherwise the window does not contain that hour,
    /// and this is the best moment in the window.
    pub best: bool,
    /// Source of the best hour: the person's own activity or that of all people.
    pub source: BestSendTimeSource,
    /// Confidence of the best hour in percent; 0 if it comes from the activity of all people.
    pub confidence: u8,
}

/// Checks a window of `hours` hours that begins at `from`.
///
/// # Errors
/// A message for the user that says what is wrong.
pub fn checked_window(from: Millis, hours: u32, now: Millis) -> Result<Range<Millis>, String> {
    let until = from.saturating_add(Millis::from(hours) * HOUR_MS);
    if !(1..=limits::SCHEDULE_HOURS).contains(&hours) {
        return Err(format!("invalid `hours`: a window has 1 to {} hours", limits::SCHEDULE_HOURS));
    }
    if until <= now {
        return Err("the window is over: it must end in the future".to_owned());
    }
    if from > now.saturating_add(Millis::from(limits::SCHEDULE_HOURS) * HOUR_MS) {
        return Err(format!("the window must begin within {} hours from now", limits::SCHEDULE_HOURS));
    }
    Ok(from..until)
}

/// The best moments of some members. A visitor that is no longer the oldest of its person is left out.
///
/// # Errors
/// [`StoreError`].
pub fn send_moments(
    conn: &Connection,
    tenant: &TenantContext,
    members: &[VisitorId],
    window: &Range<Millis>,
    now: Millis,
) -> Result<Vec<SendMoment>, StoreError> {
    let mut everybody = TenantHabits::load(conn, tenant)?;
    let mut find = conn.prepare_cached(visitors::VISITORS_PERSON_OF_MASTER)?;
    let mut all = Vec::with_capacity(members.len());
    for master in members {
        let person = find.query_row((tenant.no.0, master.as_bytes()), |row| row.get(0).map(PersonNo)).optional()?;
        let Some(person) = person else { continue };
        let activity = match best_send_times::read(conn, person, &everybody) {
            Err(e) if e.is_of_a_value() => {
                tracing::error!(person = person.0, error = %crate::base::error_chain(&e), "a person cannot be read and is left out of the schedule");
                continue;
            }
            activity => activity?,
        };
        let Some(activity) = activity else { continue };
        let zone = everybody.zone_of(&activity);
        let (habits, offsets) = everybody.habits(&activity, &zone, now, window.end);
        let Some(at_ms) = habits.next(now, window.clone(), &offsets) else { continue };
        let found = habits.best();
        all.push(SendMoment {
            person: *master,
            at_ms,
            local: time_zones::local_time(&zone, at_ms),
            time_zone: zone.iana_name().unwrap_or("UTC").to_owned(),
            best: found.is_now(at_ms, offsets.at(at_ms)),
            source: found.source,
            confidence: found.confidence,
        });
    }
    Ok(all)
}

/// Header before the first line.
#[must_use]
pub fn format_head(lines: MemberFormat) -> &'static str {
    if lines == MemberFormat::Csv { "person,at_ms,local,time_zone,best,source,confidence\n" } else { "" }
}

/// Formats moments, one line each. No value needs escaping.
#[must_use]
pub fn format_moments(lines: MemberFormat, moments: &[SendMoment]) -> String {
    let mut text = String::with_capacity(moments.len() * 180);
    for SendMoment { person, at_ms, local, time_zone, best, source, confidence } in moments {
        let source = if *source == BestSendTimeSource::Person { "person" } else { "population" };
        text.push_str(&match lines {
            MemberFormat::Csv => format!("{person},{at_ms},{local},{time_zone},{best},{source},{confidence}\n"),
            MemberFormat::Ndjson => format!(
                "{{\"person\":\"{person}\",\"at_ms\":{at_ms},\"local\":\"{local}\",\"time_zone\":\"{time_zone}\",\
                 \"best\":{best},\"source\":\"{source}\",\"confidence\":{confidence}}}\n"
            ),
        });
    }
    text
}
