//! A job beside another connection that writes for longer than the job waits.

use super::*;

/// Runs it while, from its first pause on, another connection writes until its second transaction has failed.
fn beside_a_writer(world: &mut World, run: &Run) -> Run {
    let data = world.origin.data().to_owned();
    let other = store::open(&data).unwrap();
    for conn in [&world.origin.conn, &*world.notes.lock().unwrap()] {
        conn.busy_timeout(Duration::ZERO).unwrap();
    }
    let Origin { conn, rules, metrics, now, .. } = &mut world.origin;
    // How often the time was asked for since it began to write.
    let asked = Cell::new(None);
    let pause = || {
        if asked.get().is_none() {
            other.execute_batch("BEGIN IMMEDIATE").unwrap();
            asked.set(Some(0));
        }
    };
    let given = || {
        if let Some(times) = asked.get() {
            asked.set(Some(times + 1));
            // For the transaction that fails, and for the run's end.
            if times == 1 {
                other.execute_batch("ROLLBACK").unwrap();
            }
        }
        Ok(Given { now: *now, random: [9; 32] })
    };
    let place = Place {
        hands_out: true,
        data: &data,
        conn,
        rules,
        metrics,
        backlog: &|| Ok(Backlog::default()),
        audience: &|| Ok(Audience::default()),
        training: &train::Options::default(),
        given: &given,
        pause: &pause,
        wait: &|_| {},
        told: &|_, _| Ok(()),
        to_the_end: &AtomicBool::new(true),
    };
    Runner { place, notes: &world.notes, stop: &|| false }.run(run).unwrap()
}

#[test]
fn a_job_beside_one_that_writes_for_too_long_goes_on_later_where_it_was() {
    let [mut whole, mut world] = [(); 2].map(|()| {
        let mut world = World::with(0);
        old(&mut world, 1_500);
        world
    });
    let run = world.begin(Job::Trim, false);
    let cut = beside_a_writer(&mut world, &run);
    assert_eq!(cut.outcome, Some(Outcome::Interrupted));
    assert!(cut.cursor > 0, "what it had done stays done");
    let again = runs::begin_waiting(&mut world.origin.conn, world.origin.now, Some(true)).unwrap().unwrap();
    let done = world.run(&again, u64::MAX);
    assert_eq!((done.no, done.outcome), (run.no, Some(Outcome::Done)));
    assert_eq!(done.report, whole.all(Job::Trim, false).report);
    assert_eq!(world.dump(), whole.dump());
}
