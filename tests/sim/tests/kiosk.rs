//! One browser at which thousands of members log in one after the other.

use causeway_shared::facts::fact::FactKind;
use causeway_sim::dice::Dice;
use causeway_sim::model::MEMBER;
use causeway_sim::setup::Plan;
use causeway_sim::world::World;

const LOGINS: usize = 5_000;

#[test]
fn five_thousand_logins_at_one_kiosk_join_no_two_members() {
    let plan = Plan {
        kiosk: true,
        shared_browsers: true,
        browsers: 1,
        members: 5_000,
        pace_ms: 2_000,
        ..Plan::draw(&mut Dice::new(5))
    };
    let mut world = World::with(5, plan);
    if let Err(failure) = world.run(125_000) {
        unreachable!("{}: {}", failure.checker, failure.what);
    }
    let is_login = |what: &FactKind| matches!(what, FactKind::Alias { id, .. } if id.kind == MEMBER);
    let logins = world.model.facts().filter(|(_, record)| is_login(&record.fact.what)).count();
    assert!(logins >= LOGINS, "{logins} logins");
}
