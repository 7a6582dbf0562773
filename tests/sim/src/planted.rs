//! Shows that the simulator finds planted bugs: each bug is activated alone, and a world that converges without it must
//! fail.

use std::process::ExitCode;
use std::time::Instant;

use causeway_shared::base::planted::{PlantedBug, activate};

use crate::{Outcome, play, play_worlds};

/// Worlds played first without a bug; all of them must converge.
const SOUND_WORLDS: u64 = 20;
/// Characters of a checker's report that are printed.
const REPORT_CHARS: usize = 120;

/// Plays up to `worlds` worlds with each bug, all bugs if none is named, and fails if one of them is not found.
pub(crate) fn find_bugs(named: &[PlantedBug], worlds: u64, events: u64) -> ExitCode {
    let begun = Instant::now();
    if let Some((seed, failure)) = play_worlds(1, events, true, |seed| seed <= SOUND_WORLDS).failed.first() {
        println!("without a bug seed {seed} fails: {}: play it with `cargo xtask sim --seed {seed}`", failure.checker);
        return ExitCode::FAILURE;
    }
    let bugs = if named.is_empty() { PlantedBug::ALL } else { named };
    let found: Vec<bool> = bugs.iter().map(|bug| finds_bug(*bug, worlds, events)).collect();
    let missed = found.iter().filter(|is_found| !**is_found).count();
    println!("{} planted bugs in {:.0} s: {missed} not found", bugs.len(), begun.elapsed().as_secs_f64());
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether a world fails with this bug and converges without it. Prints one line.
fn finds_bug(bug: PlantedBug, worlds: u64, events: u64) -> bool {
    activate(Some(bug));
    let Outcome { failed, .. } = play_worlds(1, events, true, |seed| seed <= worlds);
    activate(None);
    let name = bug.name();
    let Some((seed, failure)) = failed.first() else {
        println!("{name} NOT FOUND in {worlds} worlds");
        return false;
    };
    if let Err(without) = play(*seed, events).1 {
        println!("{name} proves nothing: seed {seed} fails without it too, by {}", without.checker);
        return false;
    }
    let report: String = failure.what.chars().take(REPORT_CHARS).collect();
    println!("{name} found at seed {seed} by {}: {report}", failure.checker);
    true
}
