//! Many visitors with few actions, generated from a seed: as facts for the store, packed for memory, and unpacked for
//! the reference.

use causeway_bench_wasm::counting::entity;
use causeway_bench_wasm::scramble;
use causeway_shared::base::ids::{FactId, InsertionId, Millis, VisitorId};
use causeway_shared::base::time::Minute;
use causeway_shared::facts::actions::{ActionList, ActionType, AdAction, InsertionHash, ViewType};
use causeway_shared::facts::fact::{Fact, FactKind};

/// Visits of each visitor, on random days.
const VISITS: u64 = 4;
/// Actions of one visit.
const ACTIONS: u64 = 5;
const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 1_440 * MINUTE_MS;

/// All visitors at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct People {
    pub(super) now: Millis,
    pub(super) count: u32,
}

impl People {
    pub(super) fn visitor(self, n: u32) -> VisitorId {
        let [a, b, c, d] = n.to_be_bytes();
        VisitorId::mint(self.now - 40 * DAY_MS + u64::from(n), [0, 0, 0, 0, 0, 0, a, b, c, d])
    }

    /// The facts of one visitor over the last 30 days, four fifths of them impressions.
    pub(super) fn facts(self, n: u32) -> impl Iterator<Item = Fact> {
        let visitor = self.visitor(n);
        (0..VISITS * ACTIONS).map(move |i| {
            let visit = scramble(!(u64::from(n) << 32 | (i / ACTIONS)));
            let bits = scramble(u64::from(n) << 32 | i);
            let at = self.now - visit % (30 * DAY_MS) - (ACTIONS - i % ACTIONS) * MINUTE_MS;
            let what = FactKind::Action {
                insertion: InsertionId((u128::from(n) << 64 | u128::from(i)).to_be_bytes()),
                action_type: if bits.is_multiple_of(5) { ActionType::CLICK } else { ActionType::IMPRESSION },
                view_type: ViewType((bits / 5 % 3) as u8),
                entity: entity(bits / 15 % 2_000),
            };
            Fact { position: 0, id: FactId::of_message(visitor, &i.to_string()), visitor, received: at, at, what }
        })
    }

    pub(super) fn actions(self, n: u32) -> ActionList {
        let action = |fact: Fact| match fact.what {
            FactKind::Action { insertion, action_type, view_type, entity } => {
                let insertion = InsertionHash::of(insertion);
                Some(AdAction { insertion, action_type, view_type, entity, minute: Minute::at(fact.at) })
            }
            _ => None,
        };
        self.facts(n).filter_map(action).collect()
    }
}
