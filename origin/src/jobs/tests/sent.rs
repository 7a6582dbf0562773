//! Sends.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use causeway_shared::base::ids::FactId;
use serde_json::Value as Json;

use super::materialised::{bonn, lives_in};
use super::*;
use crate::audience::send::{self, Send, SendError, SendTerms, SendTotals};
use crate::campaigns::experiment::results;
use crate::testing::withdrawal;

fn terms(count: u32, experiment: Option<&str>) -> SendTerms {
    let experiment = experiment.map(str::to_owned);
    SendTerms { filter: bonn().to_string(), count, experiment, webhook: false, per_second: None }
}

impl World {
    /// People who live in Bonn.
    fn of_bonn(people: u32) -> Self {
        let mut world = Self::of(Origin::tested());
        let facts: Vec<Fact> = (0..people).map(|v| lives_in(v, 1, NOW, "Bonn")).collect();
        world.origin.send("demo", &facts);
        world.follow();
        world
    }

    fn start(&mut self, name: &str, terms: &SendTerms) -> Result<Send, SendError> {
        let known = self.origin.tenant("demo").clone();
        Send::begin(&mut self.origin.conn, &known, name, terms, 7, self.origin.now)
    }

    /// Runs the job and returns the send.
    fn tell(&mut self, name: &str) -> Send {
        self.follow();
        let run = self.next_run();
        let ended = self.run(&run, u64::MAX);
        assert_eq!(ended.outcome, Some(RunOutcome::Done), "{}", ended.report);
        self.sent(name)
    }

    /// The interrupted run, or a new one.
    fn next_run(&mut self) -> JobRun {
        let waiting = runs::begin_waiting(&mut self.origin.conn, self.origin.now, Some(true)).unwrap();
        waiting.unwrap_or_else(|| self.begin(JobKind::Send, false))
    }

    fn sent(&self, name: &str) -> Send {
        send::find_send(&self.origin.conn, self.origin.tenant("demo").no, name).unwrap().unwrap()
    }

    /// The people that a send drew, in order: visitor, arm and outcome.
    fn drawn(&self, send: &Send) -> Vec<(VisitorId, Option<u8>, Option<u8>)> {
        let read = "SELECT visitor, arm, outcome FROM send_people WHERE send = ?1 ORDER BY place";
        let mut statement = self.origin.conn.prepare(read).unwrap();
        let rows =
            statement.query_map([send.no], |row| Ok((store::visitor_at(row, 0)?, row.get(1)?, row.get(2)?))).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }
}

fn visitors(drawn: &[(VisitorId, Option<u8>, Option<u8>)]) -> BTreeSet<VisitorId> {
    drawn.iter().map(|(visitor, ..)| *visitor).collect()
}

#[test]
fn a_send_that_a_clock_put_far_off_goes_on_by_itself_and_when_it_is_started_again() {
    for again in [false, true] {
        let mut world = World::of_bonn(500);
        world.origin.now = NOW + 300 * DAY_MS;
        world.start("may", &terms(500, None)).unwrap();
        let run = world.begin(JobKind::Send, false);
        assert_eq!(world.run(&run, 3).outcome, Some(RunOutcome::Interrupted));
        world.origin.now = NOW + HOUR_MS;
        assert_eq!(send::next_due(&world.origin.conn, world.origin.now).unwrap(), Some(world.origin.now));
        if again {
            world.start("may", &terms(500, None)).unwrap();
        }
        assert_eq!(world.tell("may").sums.delivered, 500);
    }
}

#[test]
fn a_send_exposes_no_person_after_its_experiment_has_ended() {
    let mut world = World::of_bonn(3_000);
    world.start("may", &terms(1_000, Some("e-1"))).unwrap();
    let ends = "UPDATE catalogues SET experiments = json_set(experiments, '$[0].ends', ?1)";
    world.origin.conn.execute(ends, [crate::base::integers::signed(NOW + 1)]).unwrap();
    world.origin.now = NOW + HOUR_MS;
    let run = world.next_run();
    world.run(&run, u64::MAX);
    let send = world.sent("may");
    assert_eq!((send.due, send.sums), (None, SendTotals::default()));
    assert!(send.error.unwrap().contains("does not run now"));
}

#[test]
fn a_send_with_arms_that_the_experiment_lost_delivers_to_no_person_of_its_control() {
    let mut world = World::of_bonn(500);
    world.start("may", &terms(500, Some("e-1"))).unwrap();
    let run = world.begin(JobKind::Send, false);
    assert_eq!(world.run(&run, 3).outcome, Some(RunOutcome::Interrupted));
    let before = world.sent("may");
    assert!(before.chosen == Some(500) && before.next < 500);
    // The control arm is removed from the catalogue.
    let ends = "UPDATE catalogues SET experiments = json_remove(experiments, '$[0].arm[0]')";
    world.origin.conn.execute(ends, []).unwrap();
    let run = world.next_run();
    world.run(&run, u64::MAX);
    let send = world.sent("may");
    assert_eq!((send.due, send.next, send.sums), (None, before.next, before.sums));
    assert!(send.error.unwrap().contains("in the arm of code 1"));
}

#[test]
fn each_arm_gets_its_share_in_any_order_of_the_file() {
    let mut world = World::of_bonn(1_000);
    let arms = r#"[{"id":"none","code":3,"share":2000,"control":true},{"id":"a","code":1,"share":3000},
        {"id":"b","code":2,"share":5000}]"#;
    let put = "UPDATE catalogues SET experiments = json_set(experiments, '$[0].arm', json(?1))";
    world.origin.conn.execute(put, [arms]).unwrap();
    world.start("may", &terms(100, Some("e-1"))).unwrap();
    let send = world.tell("may");
    let drawn = world.drawn(&send);
    let of_arm = |code| drawn.iter().filter(|(_, arm, _)| *arm == Some(code)).count();
    assert_eq!([1, 2, 3].map(of_arm), [30, 50, 20]);
}

#[test]
fn a_send_that_can_draw_nobody_is_over_and_says_why() {
    let mut world = World::of_bonn(20);
    world.start("may", &terms(20, Some("e-1"))).unwrap();
    assert_eq!(world.tell("may").chosen, Some(20));
    let others = SendTerms { filter: json!({ "attributes.city": "Rome" }).to_string(), ..terms(5, None) };
    for (name, terms, why) in [
        (
            "june",
            terms(5, Some("e-1")),
            "all 20 people who match the filter were exposed to the experiment `e-1` before",
        ),
        ("july", others, "no person matches the filter"),
    ] {
        world.start(name, &terms).unwrap();
        let send = world.tell(name);
        let told = crate::testing::as_json(send.describe(&world.origin.rules.tenants));
        assert_eq!((send.chosen, send.due, send.is_done()), (Some(0), None, true));
        assert!(told["reason"].as_str().unwrap().starts_with(why), "{told}");
        assert_eq!(told["error"], Json::Null);
        assert_eq!(world.start(name, &terms).unwrap(), send, "it stays so");
    }
}

#[test]
fn a_send_delivers_to_the_exact_number_of_people_once_each_in_counted_arms() {
    let mut world = World::of_bonn(3_000);
    world.start("may", &terms(1_000, Some("e-1"))).unwrap();
    let send = world.tell("may");
    // One half is in the control arm.
    assert_eq!((send.chosen, send.due, send.error.clone()), (Some(1_000), None, None));
    assert_eq!(send.sums, SendTotals { delivered: 500, control: 500, ..SendTotals::default() });
    let drawn = world.drawn(&send);
    assert_eq!((drawn.len(), visitors(&drawn).len()), (1_000, 1_000));
    let of_arm = |code| drawn.iter().filter(|(_, arm, _)| *arm == Some(code)).count();
    assert_eq!([1, 2].map(of_arm), [500, 500]);
    assert!(drawn.iter().all(|(_, arm, outcome)| *outcome == Some(if *arm == Some(1) { 2 } else { 1 })));
    // Any hundred consecutive people are split evenly among the arms.
    assert!(drawn.chunks(100).all(|some| some.iter().filter(|(_, arm, _)| *arm == Some(1)).count() == 50));

    let known = world.origin.tenant("demo").clone();
    let (told, end) = send::list_recipients(&world.origin.conn, &send, 0, 400).unwrap();
    let (rest, over) = send::list_recipients(&world.origin.conn, &send, end.unwrap(), 4_000).unwrap();
    assert_eq!((told.len() + rest.len(), end, over), (500, Some(400), None));
    // Each of them was exposed, and the experiment counts each once.
    let shown = crate::testing::as_json(
        results::describe_experiment(&world.origin.conn, &known, "e-1", world.origin.now).unwrap().unwrap(),
    );
    let counted: Vec<&Json> = shown["arms"].as_array().unwrap().iter().map(|arm| &arm["recipients"]).collect();
    assert_eq!(counted, [&json!(500), &json!(500)]);

    // The same request again changes nothing. Another send of the experiment draws no exposed person.
    assert_eq!(world.start("may", &terms(1_000, Some("e-1"))).unwrap(), send);
    assert_eq!(world.tell("may"), send);
    world.start("june", &terms(2_500, Some("e-1"))).unwrap();
    let second = world.tell("june");
    assert_eq!(second.chosen, Some(2_000), "all that are left");
    assert!(visitors(&world.drawn(&second)).is_disjoint(&visitors(&drawn)));
}

#[test]
fn a_send_interrupted_anywhere_delivers_to_the_same_people_once_each() {
    let mut whole = World::of_bonn(2_700);
    whole.start("may", &terms(2_500, None)).unwrap();
    let whole_send = whole.tell("may");
    assert_eq!(whole_send.sums, SendTotals { delivered: 2_500, ..SendTotals::default() });
    let mut world = World::of_bonn(2_700);
    world.start("may", &terms(2_500, None)).unwrap();
    let (mut told, mut runs) = (Vec::new(), 0);
    while world.sent("may").due.is_some() {
        let run = world.next_run();
        world.run(&run, 1 + runs % 5);
        runs += 1;
        let send = world.sent("may");
        told.push(send.next);
        let handled = world.drawn(&send).iter().filter(|(.., outcome)| outcome.is_some()).count();
        assert_eq!(handled, send.next as usize, "each delivery is stored");
    }
    assert!(runs > 8 && told.is_sorted() && told.contains(&0), "{told:?}");
    assert_eq!(world.drawn(&world.sent("may")), whole.drawn(&whole_send));
}

#[test]
fn no_person_gets_a_send_twice_after_merges_unlinks_and_erasures() {
    let mut world = World::of_bonn(12);
    world.start("may", &SendTerms { per_second: NonZeroU32::new(2), ..terms(12, Some("e-1")) }).unwrap();
    let run = world.begin(JobKind::Send, false);
    // The run ends after all people were drawn and two batches were delivered.
    assert_eq!(world.run(&run, 2).outcome, Some(RunOutcome::Interrupted));
    let send = world.sent("may");
    assert_eq!((send.chosen, send.next), (Some(12), 2));
    let drawn = world.drawn(&send);
    let at = NOW + 1_000;
    world.origin.now = at;
    let arm_of = |world: &World, of: VisitorId| {
        let drawn = world.drawn(&world.sent("may"));
        drawn.iter().find(|(visitor, ..)| *visitor == of).unwrap().1.unwrap()
    };
    // By position: 2 is joined with 0, which was delivered; 4 with 3; 5 and 6 are erased; 7 withdraws; 8 moves; 9 sees
    // the other arm.
    let [v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, ..] = drawn.iter().map(|(of, ..)| *of).collect::<Vec<_>>()[..] else {
        unreachable!("{drawn:?}")
    };
    let other = 3 - arm_of(&world, v9);
    let facts = [
        world.origin.login(v0, 2, at, "ann"),
        world.origin.login(v2, 2, at, "ann"),
        world.origin.login(v3, 2, at, "ben"),
        world.origin.login(v4, 2, at, "ben"),
        withdrawal(v7, at),
        fact(v8, 2, at, lives_in(0, 0, at, "Ulm").what),
        fact(v9, 3, at, FactKind::Exposure { experiment: 1, arm: other }),
    ];
    world.origin.send("demo", &facts);
    let erase = |of| fact(of, 4, at, FactKind::Erasure { scope: ErasureScope::Visitor, id: None, also: Vec::new() });
    world.origin.admin("demo", &[erase(v5), erase(v6)]);
    let send = world.tell("may");
    assert_eq!(send.chosen, Some(12));
    let SendTotals { delivered, control, gone, merged, left } = send.sums;
    assert_eq!((delivered + control, gone, merged, left), (6, 3, 2, 1), "{:?}", world.drawn(&send));
    assert_eq!(arm_of(&world, v9), other, "a person that saw an arm meanwhile stays in it");
    let drawn = world.drawn(&send);
    assert!(drawn.len() == 10 && drawn.iter().all(|(of, ..)| ![v5, v6].contains(of)), "erased");
    let told = drawn.iter().filter(|(.., outcome)| matches!(outcome, Some(1 | 2))).map(|(of, ..)| *of);
    assert!(told.clone().any(|of| of == v1) && told.clone().all(|of| of != v2 && of != v4));

    // After an unlink they are two people again, but neither is delivered again.
    let id = world.origin.member("demo", "ann");
    world.origin.admin("demo", &[v0, v2].map(|of| fact(of, 5, at + 1, FactKind::Cancellation { id })));
    assert_eq!(world.tell("may"), send);
}

#[test]
fn a_visitor_erased_during_the_draw_is_in_no_row_of_the_send() {
    let mut moments = 0;
    loop {
        let mut world = World::of_bonn(6);
        world.start("may", &terms(6, Some("e-1"))).unwrap();
        world.erased_meanwhile(moments, visitor(3));
        let send = world.tell("may");
        let (_, left) = world.meanwhile.take();
        let drawn = visitors(&world.drawn(&send));
        if !left.is_empty() {
            assert_eq!((drawn.len(), moments > 3), (6, true), "it was over before");
            return;
        }
        assert!(drawn.len() == 5 && !drawn.contains(&visitor(3)), "{moments}");
        moments += 1;
    }
}

#[test]
fn what_a_client_calls_its_events_is_in_no_sends_way() {
    let mut world = World::of_bonn(100);
    let named = |v| {
        ["send may", "send 1"].map(|name| Fact { id: FactId::of_message(visitor(v), name), ..page(visitor(v), 0, NOW) })
    };
    let pages: Vec<Fact> = (0..100).flat_map(named).collect();
    world.origin.send("demo", &pages);
    world.start("may", &terms(100, Some("e-1"))).unwrap();
    world.tell("may");
    let known = world.origin.tenant("demo").clone();
    let shown = crate::testing::as_json(
        results::describe_experiment(&world.origin.conn, &known, "e-1", world.origin.now).unwrap().unwrap(),
    );
    let counted: Vec<&Json> = shown["arms"].as_array().unwrap().iter().map(|arm| &arm["recipients"]).collect();
    assert_eq!(counted, [&json!(50), &json!(50)]);
}

#[test]
fn a_send_keeps_to_its_configured_rate() {
    let mut world = World::of_bonn(2_825);
    let begun = std::time::Instant::now();
    world.start("slow", &SendTerms { per_second: NonZeroU32::new(113), ..terms(2_825, None) }).unwrap();
    // The send takes two runs, between which other jobs have their turn.
    assert!(world.tell("slow").sums.delivered < 2_825);
    assert_eq!(world.tell("slow").sums.delivered, 2_825);
    let waited = world.waited.get();
    // 25 seconds by the run's clock: the waits and the time of the work.
    assert!(waited + begun.elapsed() >= Duration::from_secs(25) && waited <= Duration::from_secs(25), "{waited:?}");
}

#[test]
fn sends_are_delivered_in_parallel_each_at_its_own_rate() {
    let mut world = World::of_bonn(700);
    let begun = std::time::Instant::now();
    for (name, per_second, count) in [("slow", 20, 160), ("slower", 10, 80), ("fast", 0, 700)] {
        world.start(name, &SendTerms { per_second: NonZeroU32::new(per_second), ..terms(count, None) }).unwrap();
    }
    let send = world.tell("slower");
    let told = ["slow", "slower", "fast"].map(|name| world.sent(name).sums.delivered);
    assert_eq!((told, send.due), ([160, 80, 700], None));
    // Eight seconds for each by the run's clock, in parallel.
    let waited = world.waited.get();
    assert!(waited + begun.elapsed() >= Duration::from_secs(8) && waited <= Duration::from_secs(9), "{waited:?}");
}

#[test]
fn a_send_that_cannot_be_says_why_and_one_that_was_stopped_goes_on_where_it_was() {
    let mut world = World::of_bonn(300);
    let ok = terms(300, None);
    let mut said = |name: &str, terms: &SendTerms| world.start(name, terms).unwrap_err().to_string();
    assert!(said("May", &ok).contains("1 to 64 of a-z"));
    assert!(said(&"m".repeat(65), &ok).contains("1 to 64"));
    for count in [0, 1_000_001] {
        assert!(said("may", &SendTerms { count, ..ok.clone() }).contains("1 to 1000000 people"));
    }
    assert!(
        said("may", &SendTerms { per_second: NonZeroU32::new(100_001), ..ok.clone() })
            .contains("100000 people a second")
    );
    assert!(said("may", &SendTerms { webhook: true, ..ok.clone() }).contains("no `webhook`"));
    assert!(said("may", &terms(300, Some("e-9"))).contains("no experiment `e-9`"));
    world.start("may", &ok).unwrap();
    assert!(world.start("may", &terms(299, None)).unwrap_err().to_string().contains("other terms"));

    let no = world.origin.tenant("demo").no;
    world.origin.now += 7;
    let run = world.begin(JobKind::Send, false);
    world.run(&run, 3);
    let cut = world.sent("may").next;
    assert_eq!(world.sent("may").due, Some(NOW + 7), "the send that has waited longest goes first");
    assert!(cut > 0 && cut < 300, "{cut}");
    assert!(send::stop_send(&world.origin.conn, no, "may").unwrap());
    assert!(!send::stop_send(&world.origin.conn, no, "may").unwrap());
    assert_eq!(send::next_due(&world.origin.conn, world.origin.now).unwrap(), None);
    let run = world.next_run();
    assert_eq!(world.run(&run, u64::MAX).report["sends"], 0);
    assert_eq!((world.sent("may").next, world.sent("may").error.as_deref()), (cut, Some("stopped")));
    world.start("may", &ok).unwrap();
    assert_eq!(world.tell("may").sums.delivered, 300);

    // An invalid filter stops only its own send.
    world.start("june", &ok).unwrap();
    world.start("july", &terms(10, None)).unwrap();
    world.origin.conn.execute("UPDATE sends SET filter = '{\"attributes.gone\": 1}' WHERE name = 'june'", []).unwrap();
    let ended = world.all(JobKind::Send, false);
    assert_eq!(ended.outcome, Some(RunOutcome::Failed));
    assert!(ended.report["error"].as_str().unwrap().contains("send june: filter.attributes.gone"));
    assert_eq!((world.sent("june").due, world.sent("july").sums.delivered), (None, 10));

    // People of a tenant that is not configured are not delivered, and the send is tried again later.
    world.start("august", &ok).unwrap();
    world.origin.conn.execute("UPDATE sends SET tenant = 77 WHERE name = 'august'", []).unwrap();
    assert_eq!(world.all(JobKind::Send, false).outcome, Some(RunOutcome::Failed));
    assert_eq!(send::next_due(&world.origin.conn, world.origin.now).unwrap(), Some(world.origin.now + HOUR_MS));
}

#[test]
fn a_job_that_runs_when_its_work_is_due_waits_a_little_after_it_failed() {
    let timer = |at, outcome, ended| Timer {
        job: JobKind::Send,
        tenant: None,
        when: TimerCondition::At(at),
        last: Some(LastRun { started: NOW - 99, ended, outcome: Some(outcome) }),
    };
    let at = |timer: Timer| next_due_job(&[timer], NOW);
    let due = NextDue::Due(JobKind::Send, None);
    assert_eq!(at(timer(None, RunOutcome::Done, NOW)), NextDue::Never);
    assert_eq!(at(timer(Some(NOW), RunOutcome::Done, NOW)), due);
    assert_eq!(at(timer(Some(NOW + 3), RunOutcome::Done, NOW)), NextDue::At(NOW + 3));
    assert_eq!(at(timer(Some(NOW - 50), RunOutcome::Failed, NOW - 10)), NextDue::At(NOW - 10 + AGAIN_MS));
    assert_eq!(at(timer(Some(NOW - 50), RunOutcome::Failed, NOW - AGAIN_MS)), due);
    assert_eq!(at(timer(Some(NOW - 50), RunOutcome::Failed, NOW + 9)), due, "the clock went back");
}

#[test]
fn what_the_store_cannot_give_of_one_send_holds_no_other_up() {
    let mut world = World::of_bonn(20);
    let ulm: Vec<Fact> = (20..30).map(|v| lives_in(v, 1, NOW, "Ulm")).collect();
    world.origin.send("demo", &ulm);
    world.follow();
    let of_ulm = SendTerms { filter: json!({ "attributes.city": "Ulm" }).to_string(), ..terms(10, None) };
    world.start("bonn", &terms(20, None)).unwrap();
    world.start("ulm", &of_ulm).unwrap();
    let attributes = |world: &World, to: &[u8]| {
        let put = "UPDATE visitors SET attributes = ?1 WHERE visitor = ?2";
        world.origin.conn.execute(put, (to, visitor(3).as_bytes())).unwrap();
    };
    let read = "SELECT attributes FROM visitors WHERE visitor = ?1";
    let before: Vec<u8> = world.origin.conn.query_row(read, [visitor(3).as_bytes()], |row| row.get(0)).unwrap();
    attributes(&world, &[0xff, 0xff]);
    // A person whose stored values cannot be read counts as not matching.
    let run = world.next_run();
    assert_eq!(world.run(&run, u64::MAX).outcome, Some(RunOutcome::Done));
    assert_eq!(world.sent("bonn").sums, SendTotals { delivered: 19, left: 1, ..SendTotals::default() });
    assert_eq!(world.sent("ulm").sums.delivered, 10);

    // A rebuilt audience index leaves out that person alone.
    world.start("june", &terms(20, None)).unwrap();
    assert_eq!(world.sent("june").due, Some(NOW));
    world.follow();
    let run = world.next_run();
    world.run(&run, u64::MAX);
    assert_eq!(world.sent("june").sums, SendTotals { delivered: 19, ..SendTotals::default() });

    attributes(&world, &before);
    world.follow();
    world.start("may", &SendTerms { per_second: NonZeroU32::new(5), ..terms(20, None) }).unwrap();
    let run = world.begin(JobKind::Send, false);
    assert_eq!(world.run(&run, 2).outcome, Some(RunOutcome::Interrupted));
    let drawn = world.sent("may");
    assert_eq!((drawn.chosen, drawn.next), (Some(20), 5));
    let damaged = world.drawn(&drawn)[7].0;
    let damage = "UPDATE send_people SET visitor = x'00' WHERE send = ?1 AND place = 7";
    assert_eq!(world.origin.conn.execute(damage, [drawn.no]).unwrap(), 1);
    world.start("august", &of_ulm).unwrap();
    let run = world.next_run();
    let ended = world.run(&run, u64::MAX);
    assert_eq!((ended.outcome, world.sent("august").sums.delivered), (Some(RunOutcome::Failed), 10));
    let stuck = world.sent("may");
    assert_eq!((stuck.due, stuck.next), (Some(NOW + 1_000), 5));
    assert!(stuck.error.is_some() && ended.report.to_string().contains("may"), "{}", ended.report);
    let mend = "UPDATE send_people SET visitor = ?1 WHERE visitor = x'00'";
    assert_eq!(world.origin.conn.execute(mend, [damaged.as_bytes()]).unwrap(), 1);
    world.origin.now += 2_000;
    assert_eq!(world.tell("may").sums.delivered, 20);
}

#[test]
fn one_that_is_over_stays_as_it_is_though_what_it_needed_has_ended() {
    let mut world = World::of_bonn(100);
    world.start("may", &terms(50, Some("e-1"))).unwrap();
    let told = world.tell("may");
    assert_eq!(told.due, None);
    let ends = "UPDATE catalogues SET experiments = json_set(experiments, '$[0].ends', ?1)";
    world.origin.conn.execute(ends, [crate::base::integers::signed(NOW + 1)]).unwrap();
    world.origin.now += DAY_MS;
    assert_eq!(world.start("may", &terms(50, Some("e-1"))).unwrap(), told);
    assert!(matches!(world.start("may", &terms(51, None)), Err(SendError::Other(_))));
    assert!(matches!(world.start("june", &terms(50, Some("e-1"))), Err(SendError::Experiment(_))));
}
