//! An origin refuses to start over a data directory from which a file was removed, cut or replaced.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use causeway_shared::base::ids::VisitorId;

use crate::support::{Place, SOON, hold, page, request, visitor, within};

const STORE: [&str; 3] = ["causeway.db", "causeway.db-wal", "causeway.db-shm"];
const LOG: [&str; 3] = ["log.db", "log.db-wal", "log.db-shm"];

fn file(place: &Place, name: &str) -> PathBuf {
    place.path().join("data").join(name)
}

/// Moves files out of the data directory; returns a function that moves them back.
fn take_away(place: &Place, names: &[&str]) -> impl FnOnce() + use<> {
    let away = tempfile::tempdir().unwrap();
    let moved: Vec<(PathBuf, PathBuf)> = names
        .iter()
        .map(|name| (file(place, name), away.path().join(name)))
        .filter(|(from, to)| from.exists() && fs::rename(from, to).is_ok())
        .collect();
    assert!(!moved.is_empty(), "{names:?}");
    move || {
        moved.iter().for_each(|(from, to)| {
            fs::copy(to, from).unwrap();
        });
        drop(away);
    }
}

/// The standard error of an origin that refuses to start.
fn refusal(place: &Place) -> String {
    let mut child = place.command(&["serve"]).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + SOON;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            unreachable!("the origin runs");
        }
        std::thread::yield_now();
    }
    assert!(!child.wait().unwrap().success());
    let mut message = String::new();
    child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    message
}

/// A directory whose store holds one page of the first visitor, and whose log holds one acknowledged page more.
fn with_waiting_fact() -> (Place, VisitorId) {
    let (place, of) = (Place::new(), visitor(1));
    let origin = place.serve();
    origin.send(&[page(of, 1)]);
    let held = hold(&place, "causeway.db");
    assert_eq!(origin.sync(&request(&[page(of, 2)])).accepted, 1);
    origin.kill();
    drop(held);
    (place, of)
}

#[test]
fn a_removed_log_with_acknowledged_facts_is_not_replaced_by_an_empty_one() {
    let (place, of) = with_waiting_fact();
    let put_back = take_away(&place, &LOG);
    let message = refusal(&place);
    assert!(message.contains("log.db is missing") && message.contains("causeway data accept-loss"), "{message}");
    assert!(!file(&place, "log.db").exists(), "nothing was made");
    let check = place.run(&["data", "check", "--output", "json"]);
    assert_eq!(check.status.code(), Some(1));
    put_back();
    let origin = place.serve();
    within(SOON, "the fact is folded", || (place.inspect(of)["own"]["pages"] == 2).then_some(()).ok_or("not yet"));
    origin.kill();
}

#[test]
fn a_lost_log_is_gone_on_without_by_a_command_that_says_what_is_lost() {
    let (place, of) = with_waiting_fact();
    drop(take_away(&place, &LOG));
    let plan = place.json(&["data", "accept-loss"]);
    assert_eq!(plan["done"], false);
    assert!(plan["faults"][0]["fault"].as_str().unwrap().contains("(records 2 to 2)"), "{plan}");
    assert!(refusal(&place).contains("log.db is missing"), "a plan changes nothing");
    assert_eq!(place.json(&["data", "accept-loss", "--yes"])["done"], true);
    let origin = place.serve();
    origin.send(&[page(of, 3)]);
    assert_eq!(place.inspect(of)["own"]["pages"], 2, "the first and the third");
    origin.kill();
    place.serve().kill();
}

#[test]
fn a_log_whose_write_ahead_file_was_cut_is_noticed() {
    let (place, _) = with_waiting_fact();
    let wal = file(&place, "log.db-wal");
    let bytes = fs::read(&wal).unwrap();
    // The frames of the last commit.
    for cut in [0, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&wal, &bytes[..cut]).unwrap();
        drop(fs::remove_file(file(&place, "log.db-shm")));
        let message = refusal(&place);
        assert!(message.contains("record 2 was acknowledged"), "{cut}: {message}");
    }
    assert_eq!(place.json(&["data", "accept-loss", "--yes"])["done"], true);
    place.serve().kill();
}

#[test]
fn a_removed_store_is_not_replaced_by_an_empty_one_and_a_restore_keeps_what_the_log_holds() {
    let (place, of) = (Place::new(), visitor(1));
    let origin = place.serve();
    origin.send(&[page(of, 1)]);
    let backup = place.path().join("backup");
    place.json(&["backup", "--to", backup.to_str().unwrap()]);
    let held = hold(&place, "causeway.db");
    assert_eq!(origin.sync(&request(&[page(of, 2)])).accepted, 1);
    origin.kill();
    drop(held);
    drop(take_away(&place, &STORE));
    let message = refusal(&place);
    assert!(message.contains("causeway.db is missing") && message.contains("causeway restore"), "{message}");
    assert!(!file(&place, "causeway.db").exists(), "nothing was made");
    // Commands that create a store in an empty directory create none here.
    let token = place.run(&["token", "create", "--role", "viewer"]);
    assert!(!token.status.success() && !file(&place, "causeway.db").exists());
    assert!(!place.run(&["data", "accept-loss", "--yes"]).status.success(), "only a store mends that");

    place.json(&["restore", "--from", backup.to_str().unwrap(), "--yes"]);
    let origin = place.serve();
    within(SOON, "the acknowledged fact is folded", || {
        (place.inspect(of)["own"]["pages"] == 2).then_some(()).ok_or("not yet")
    });
    origin.kill();
}

#[test]
fn a_store_replaced_by_an_older_copy_and_a_log_of_another_store_are_refused() {
    let (place, of) = (Place::new(), visitor(1));
    let origin = place.serve();
    origin.send(&[page(of, 1)]);
    origin.stop();
    let older = fs::read(file(&place, "causeway.db")).unwrap();
    let origin = place.serve();
    for n in 2..5 {
        origin.send(&[page(of, n)]);
    }
    origin.stop();
    let newer = fs::read(file(&place, "causeway.db")).unwrap();
    fs::write(file(&place, "causeway.db"), older).unwrap();
    let message = refusal(&place);
    assert!(message.contains("replaced by an older copy"), "{message}");
    fs::write(file(&place, "causeway.db"), newer).unwrap();
    let other = Place::new();
    other.serve().stop();
    fs::copy(file(&other, "log.db"), file(&place, "log.db")).unwrap();
    let message = refusal(&place);
    assert!(message.contains("log.db belongs to another store"), "{message}");
}

#[test]
fn a_lock_file_that_is_a_link_is_not_followed() {
    let place = Place::new();
    place.serve().stop();
    let target = place.path().join("target");
    fs::write(&target, "precious").unwrap();
    for lock in ["causeway.lock", "causeway.writing", "causeway.job", "causeway.ready"] {
        let path = file(&place, lock);
        drop(fs::remove_file(&path));
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let backup = place.path().join("backup");
        let message = match lock {
            "causeway.job" => String::from_utf8(place.run(&["job", "run", "trim"]).stderr).unwrap(),
            "causeway.writing" => {
                String::from_utf8(place.run(&["backup", "--to", backup.to_str().unwrap()]).stderr).unwrap()
            }
            _ => refusal(&place),
        };
        assert!(message.contains("cannot use the data directory"), "{lock}: {message}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious", "{lock}");
        fs::remove_file(path).unwrap();
    }
}
