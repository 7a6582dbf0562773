//! When members are best reached: of each the next best moment within a window (S4.13).

use std::ops::Range;

use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::time::HOUR_MS;
use causeway_shared::profiles::activity::BestTimeSource;
use rusqlite::{Connection, OptionalExtension as _};

use crate::audience::best_times::{self, TenantHabits};
use crate::audience::query::MemberFormat;
use crate::base::time_zones;
use crate::store::tenants::TenantContext;
use crate::store::{PersonNo, StoreError};

/// A member's next best moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendMoment {
    /// Its oldest visitor.
    pub person: VisitorId,
    /// When, in milliseconds since 1970.
    pub at_ms: Millis,
    /// What its clock shows then.
    pub local: String,
    /// Its time zone.
    pub time_zone: String,
    /// Whether that is its best hour of the week; else the window holds none of it, and this is the best that it holds.
    pub best: bool,
    /// Whose habit the best hour is.
    pub source: BestTimeSource,
    /// Of the best hour, in per cent; 0 where it is everybody's.
    pub confidence: u8,
}

/// A window that begins at a time, or what is wrong with it.
///
/// # Errors
/// Text for whoever asked.
pub fn checked_window(from: Millis, hours: u32, now: Millis) -> Result<Range<Millis>, String> {
    let until = from.saturating_add(Millis::from(hours) * HOUR_MS);
    if !(1..=limits::SCHEDULE_HOURS).contains(&hours) {
        return Err(format!("a window has 1 to {} hours", limits::SCHEDULE_HOURS));
    }
    if until <= now {
        return Err("the window is over: it must end in the future".to_owned());
    }
    if from > now.saturating_add(Millis::from(limits::SCHEDULE_HOURS) * HOUR_MS) {
        return Err(format!("the window must begin within {} hours from now", limits::SCHEDULE_HOURS));
    }
    Ok(from..until)
}

/// The moments of some members. Who is no person's oldest visitor any more is left out.
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
    const PERSON: &str = "SELECT p.person FROM visitors v JOIN people p USING (person)
        WHERE v.tenant = ?1 AND v.visitor = ?2 AND p.master = ?2";
    let mut everybody = TenantHabits::load(conn, tenant)?;
    let mut find = conn.prepare_cached(PERSON)?;
    let mut all = Vec::with_capacity(members.len());
    for master in members {
        let person = find.query_row((tenant.no.0, master.as_bytes()), |row| row.get(0).map(PersonNo)).optional()?;
        let Some(person) = person else { continue };
        let activity = match best_times::read(conn, person, &everybody) {
            Err(e) if e.is_of_a_value() => {
                tracing::error!(person = person.0, error = %crate::base::error_chain(&e), "a person cannot be read: it gets no moment");
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

/// What stands before the first line.
#[must_use]
pub fn format_head(lines: MemberFormat) -> &'static str {
    if lines == MemberFormat::Csv { "person,at_ms,local,time_zone,best,source,confidence\n" } else { "" }
}

/// Some of them, a line each; nothing in them has to be escaped.
#[must_use]
pub fn format_moments(lines: MemberFormat, moments: &[SendMoment]) -> String {
    let mut text = String::with_capacity(moments.len() * 180);
    for SendMoment { person, at_ms, local, time_zone, best, source, confidence } in moments {
        let source = if *source == BestTimeSource::Person { "person" } else { "population" };
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
