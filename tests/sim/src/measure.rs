//! Measures by how much the impressions of an ad exceed its cap, for growing staleness, tabs, devices and copied
//! cookies. Ledger caps and strict caps are measured in the same worlds. These worlds have no other faults.

use crate::dice::Dice;
use crate::kv::KvFaults;
use crate::setup::{LIMITS, Plan};
use crate::world::World;

/// The conditions of one row.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// KV writes and caches that are stale for up to ten minutes instead of one, per mille.
    pub stale: u64,
    /// Pages that a browser opens at once.
    pub tabs: usize,
    /// Browsers of the person.
    pub devices: usize,
    /// Whether browsers bring back old cookies, and copies of them.
    pub copied: bool,
}

/// The result of one row.
#[derive(Debug, Clone, Copy, Default)]
pub struct Over {
    /// People with more impressions than the limit, per mille.
    pub people: usize,
    /// Mean impressions over the limit per person, in thousandths.
    pub mean: usize,
    /// The most impressions over the limit that one person had.
    pub most: usize,
}

/// The rows of the table.
pub const CASES: [Case; 10] = [
    Case { stale: 0, tabs: 1, devices: 1, copied: false },
    Case { stale: 500, tabs: 1, devices: 1, copied: false },
    Case { stale: 0, tabs: 2, devices: 1, copied: false },
    Case { stale: 0, tabs: 4, devices: 1, copied: false },
    Case { stale: 0, tabs: 1, devices: 2, copied: false },
    Case { stale: 500, tabs: 1, devices: 2, copied: false },
    Case { stale: 0, tabs: 1, devices: 5, copied: false },
    Case { stale: 500, tabs: 1, devices: 5, copied: false },
    Case { stale: 0, tabs: 1, devices: 1, copied: true },
    Case { stale: 500, tabs: 4, devices: 5, copied: true },
];

/// People measured for a row, each in a separate world.
pub const PEOPLE: usize = 200;
/// Events of each world before the faults end.
const EVENTS: u64 = 1_200;
/// Mean time between two pages of one browser.
const PACE_MS: u64 = 20_000;

/// Time in which a person's browsers learn of each other before ads are placed.
const SETTLED_MS: u64 = 45 * 60_000;

/// Measures one row: ledger caps first, strict caps second.
///
/// # Errors
/// The report of a checker that failed.
pub fn measure(case: Case) -> Result<[Over; 2], String> {
    let mut over = [Over::default(); 2];
    for seed in 0..PEOPLE {
        let mut world = World::with(seed as u64, plan(case));
        world.browsers.iter_mut().for_each(|browser| browser.member = Some(0));
        world.browsers.iter_mut().for_each(|browser| browser.tenant = 0);
        world.run(EVENTS).map_err(|failure| format!("seed {seed} of {case:?}: {failure:?}"))?;
        for (over, (_, ad, limit)) in over.iter_mut().zip(LIMITS) {
            let beyond = world.check.caps.impressions(ad).saturating_sub(limit);
            over.people += usize::from(beyond > 0);
            over.mean += beyond;
            over.most = over.most.max(beyond);
        }
    }
    Ok(over.map(|over| Over { people: over.people * 1_000 / PEOPLE, mean: over.mean * 1_000 / PEOPLE, ..over }))
}

/// A plan whose only faults are those of the case.
fn plan(Case { stale, tabs, devices, copied }: Case) -> Plan {
    let kv = KvFaults { stale, ..KvFaults::default() };
    let quiet = Plan::draw(&mut Dice::new(0));
    Plan {
        kv,
        browsers: devices,
        members: 1,
        locations: 2,
        pace_ms: PACE_MS,
        odd_cookies: copied,
        settled_ms: SETTLED_MS,
        tabs: (if tabs > 1 { 1_000 } else { 0 }, tabs),
        sees: (1_000, 1_000),
        ..quiet.without_faults()
    }
}
