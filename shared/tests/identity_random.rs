//! Random histories of a few browsers and members, with delays and losses everywhere: invariants of every answer, and
//! the final state once the faults stop.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeSet;

use crate::common::{MEMBER, alternate, law};
use crate::world::{Answer, Browser, Visit, World};
use causeway_shared::base::ids::{AltHash, VisitorId};
use causeway_shared::identity::VisitorOrigin as Came;
use proptest::collection::vec;
use proptest::prelude::*;

const BROWSERS: usize = 3;

#[derive(Debug, Clone)]
enum Happens {
    Visit(usize, Visit),
    Purchase(usize),
    Withdraw(usize),
    Wait(u64),
    Deliver,
    Publish,
    PublishOne(usize),
}

/// Which faults may happen.
#[derive(Debug, Clone, Copy)]
struct Faults {
    lost_cookies: bool,
    failed_reads: bool,
    stale_reads: bool,
    partners: bool,
    withdrawals: bool,
}

const NONE: Faults =
    Faults { lost_cookies: false, failed_reads: false, stale_reads: false, partners: false, withdrawals: false };

fn visit(faults: Faults, members: u8) -> impl Strategy<Value = Visit> {
    let member = prop_oneof![1 => Just(None), 2 => (1..=members).prop_map(Some)];
    let partner = prop_oneof![3 => Just(None), 1 => (1u8..3).prop_map(Some)];
    (member, partner, 0u8..8, 0u8..10, 0usize..6, any::<bool>()).prop_map(
        move |(member, partner, lose, fail, stale, page)| Visit {
            member,
            partner: partner.filter(|_| faults.partners),
            no_page: page && lose == 1,
            lose_cookies: faults.lost_cookies && lose == 0,
            fail_first: faults.failed_reads && fail == 0,
            fail_second: faults.failed_reads && fail == 1,
            stale: if faults.stale_reads { stale.saturating_sub(3) } else { 0 },
        },
    )
}

fn life(faults: Faults, members: u8) -> impl Strategy<Value = Vec<Happens>> {
    let browser = || 0..BROWSERS;
    let one = prop_oneof![
        8 => (browser(), visit(faults, members)).prop_map(|(b, v)| Happens::Visit(b, v)),
        1 => browser().prop_map(Happens::Purchase),
        u32::from(faults.withdrawals) => browser().prop_map(Happens::Withdraw),
        2 => prop_oneof![Just(1_000u64), Just(20_000), Just(11 * 60_000), Just(3_600_000)].prop_map(Happens::Wait),
        2 => Just(Happens::Deliver),
        2 => Just(Happens::Publish),
        1 => browser().prop_map(Happens::PublishOne),
    ];
    vec(one, 1..24)
}

/// Plays a random history. `check` receives every answer, with the world after it.
fn play(
    life: &[Happens],
    world: &mut World,
    jars: &mut [Browser; BROWSERS],
    mut check: impl FnMut(&World, &Visit, &Answer) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    for happens in life {
        match happens {
            Happens::Visit(b, visit) => {
                if let Some(answer) = world.visit(&mut jars[*b], visit) {
                    check(world, visit, &answer)?;
                }
            }
            Happens::Purchase(b) => world.purchase(&jars[*b], 1_000_000),
            Happens::Withdraw(b) => world.withdraw(&mut jars[*b]),
            Happens::Wait(ms) => world.wait(*ms),
            Happens::Deliver => world.deliver(),
            Happens::Publish => world.publish(),
            Happens::PublishOne(b) => {
                if let Some(visitor) = world.visitor_of(&jars[*b]) {
                    world.publish_one(visitor);
                }
            }
        }
    }
    Ok(())
}

/// The unique ids that an answer's view joins: that of the recognised visitor, and those of all visitors that count, at
/// the time of the snapshots that this request read.
fn members_in(world: &World, answer: &Answer) -> BTreeSet<AltHash> {
    let counting = answer.members();
    let mut held: BTreeSet<AltHash> = answer.unique.into_iter().collect();
    for snapshot in &answer.read {
        for visitor in snapshot.profiles.keys().filter(|v| counting.contains(v)) {
            held.extend(world.origin.held.get(&(snapshot.version, *visitor)));
        }
    }
    held
}

fn pages_of(world: &World, visitors: &BTreeSet<VisitorId>) -> u64 {
    visitors.iter().filter_map(|v| world.pages.get(v)).sum()
}

/// Invariants of every answer, whatever the faults.
fn holds_always(world: &World, visit: &Visit, answer: &Answer) -> Result<(), TestCaseError> {
    prop_assert!(answer.reads <= 2);
    let members = answer.members();
    let (view, own) = (answer.totals(), answer.view.own(answer.visitor));
    prop_assert!(view.pages <= pages_of(world, &members), "{view:?} over {members:?}");
    prop_assert!(own.pages <= pages_of(world, &BTreeSet::from([answer.visitor])));
    prop_assert!(visit.no_page || own.pages >= 1, "this page itself");
    prop_assert!(answer.devices() as usize >= members.len());
    prop_assert_eq!(answer.bridged, members.len() > 1);
    if let Some(n) = visit.member {
        prop_assert_eq!(answer.unique, Some(alternate(MEMBER, n).hash));
    }
    let held = members_in(world, answer);
    prop_assert!(held.len() <= 1, "{held:?} in {answer:?}");
    Ok(())
}

/// Ends the faults: everything arrives, is published, and is old enough to be read.
fn calm(world: &mut World) {
    world.settle();
    world.wait(20_000);
}

proptest! {
    #![proptest_config(law())]

    #[test]
    fn no_answer_joins_two_members_whatever_is_late_or_lost(
        life in life(Faults { lost_cookies: true, failed_reads: true, ..NONE }, 2)
    ) {
        play(&life, &mut World::new(), &mut Default::default(), holds_always)?;
    }

    #[test]
    fn no_answer_joins_two_members_that_a_partner_id_or_a_stale_snapshot_ties(
        life in life(Faults { lost_cookies: true, failed_reads: true, stale_reads: true, partners: true, withdrawals: true }, 2)
    ) {
        play(&life, &mut World::new(), &mut Default::default(), holds_always)?;
    }

    #[test]
    fn the_browsers_of_one_member_count_every_page_once_and_their_own_pages_at_once(life in life(NONE, 1)) {
        let mut world = World::new();
        let mut jars: [Browser; BROWSERS] = Default::default();
        play(&life, &mut world, &mut jars, |world, visit, answer| {
            holds_always(world, visit, answer)?;
            let own = BTreeSet::from([answer.visitor]);
            prop_assert_eq!(answer.view.own(answer.visitor).pages, pages_of(world, &own));
            Ok(())
        })?;
        calm(&mut world);
        for jar in &mut jars {
            let answer = world.visit(jar, &Visit::member(1)).unwrap();
            let person: BTreeSet<VisitorId> = world.origin.person(answer.visitor).into_iter().chain([answer.visitor]).collect();
            if person.len() > 1 {
                prop_assert_eq!(answer.totals().pages, pages_of(&world, &person));
            }
            calm(&mut world);
        }
    }

    #[test]
    fn once_the_faults_stop_every_browser_is_served_exactly_its_person(
        life in life(Faults { lost_cookies: true, failed_reads: true, stale_reads: true, partners: true, withdrawals: true }, 2)
    ) {
        let mut world = World::new();
        let mut jars: [Browser; BROWSERS] = Default::default();
        play(&life, &mut world, &mut jars, |_, _, _| Ok(()))?;
        let quiet = Visit { no_page: true, ..Visit::default() };
        // Several rounds: the first visit may discover that the visitor belongs to another member or is gone.
        for _ in 0..3 {
            calm(&mut world);
            jars.iter_mut().for_each(|jar| drop(world.visit(jar, &quiet)));
        }
        calm(&mut world);
        for jar in &mut jars {
            let answer = world.visit(jar, &quiet).unwrap();
            let person = world.origin.person(answer.visitor);
            if answer.came == Came::Minted {
                continue;
            }
            let sum = person.iter().map(|v| world.origin.own(*v)).fold((0, 0), |s, t| (s.0 + t.pages, s.1 + t.purchases));
            prop_assert_eq!(answer.shown(), sum, "{:?} of {:?}", answer.members(), person);
            prop_assert_eq!(answer.devices() as usize, person.len());
            prop_assert_eq!(answer.members(), person);
        }
    }

    #[test]
    fn alternating_members_mint_one_visitor_each(order in vec(1u8..=3, 1..40), publish in any::<u64>()) {
        let mut world = World::new();
        let mut shared = Browser::default();
        let mut seen: BTreeSet<(u8, VisitorId)> = BTreeSet::new();
        for (i, member) in order.iter().enumerate() {
            let answer = world.visit(&mut shared, &Visit::member(*member)).unwrap();
            seen.insert((*member, answer.visitor));
            if publish >> (i % 64) & 1 == 1 {
                calm(&mut world);
            }
        }
        let members: BTreeSet<u8> = order.iter().copied().collect();
        prop_assert_eq!(seen.len(), members.len(), "{:?}", seen);
        prop_assert_eq!(world.minted, members.len());
    }
}
