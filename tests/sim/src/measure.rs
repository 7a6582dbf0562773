//! How far an ad's impressions go over its cap, measured: for ever more staleness, tabs, devices and copied cookies, with
//! caps kept by the ledger and strictly, in the same worlds. Nothing else goes wrong in them.

use causeway_shared::base::ids::Millis;

use crate::dice::Dice;
use crate::kv::KvFaults;
use crate::setup::{LIMITS, Plan};
use crate::world::World;

/// What one row measures.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Writes and caches that are stale for up to ten minutes instead of one, of a thousand.
    pub stale: u64,
    /// Pages that a browser opens at once.
    pub tabs: usize,
    /// Browsers of the person.
    pub devices: usize,
    /// Whether browsers bring back cookies of before, and copies of them.
    pub copied: bool,
}

/// What came out of one row.
#[derive(Debug, Clone, Copy, Default)]
pub struct Over {
    /// People who had more than the limit, of a thousand.
    pub people: usize,
    /// Impressions over the limit, of all people together, a thousandth of a person's.
    pub mean: usize,
    /// The most that one person had over the limit.
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

/// People measured for a row, each in a world of its own.
pub const PEOPLE: usize = 200;
/// Events of each.
const EVENTS: u64 = 1_200;
/// Mean time between two pages of one browser.
const PACE_MS: Millis = 20_000;

/// How long a person's browsers get to know of one another.
const SETTLED_MS: Millis = 45 * 60_000;

/// Measures one row: first by the ledger, then strictly.
///
/// # Errors
/// What a checker saw.
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

/// A world in which nothing goes wrong but what the case says.
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
