//! Backup, verification and restore.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use causeway_shared::base::ids::SnapshotVersion;
use causeway_shared::wire::sync::SyncRequest;

use crate::support::{Origin, Place, SOON, hold, once, page, purchase, visitor, within};

/// Drains the outbox; returns the published keys and the highest version.
fn publish(origin: &Origin) -> (Vec<String>, SnapshotVersion) {
    let (mut keys, mut highest, mut applied) = (Vec::new(), SnapshotVersion::default(), Vec::new());
    loop {
        let request = SyncRequest { drain: 100, applied: std::mem::take(&mut applied), ..SyncRequest::default() };
        let writes = origin.sync(&request).publish;
        if writes.is_empty() {
            return (keys, highest);
        }
        for write in writes {
            highest = highest.max(write.version);
            applied.push(write.entry);
            keys.push(write.key);
        }
    }
}

#[test]
fn a_restored_store_overwrites_values_published_since_the_backup() {
    let place = Place::new();
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1), purchase(visitor(1), 2, 5), origin.login(visitor(1), 3, "ann")]);
    let (keys, before) = publish(&origin);
    assert_eq!(keys.len(), 2, "a snapshot and a lookup");
    let folder = place.path().join("backup");
    let to = folder.to_str().unwrap();
    assert_eq!(place.json(&["backup", "--to", to])["visitors"], 1);
    let twice = place.run(&["backup", "--to", to]);
    assert!(String::from_utf8_lossy(&twice.stderr).contains("choose another folder"));

    // Facts after the backup are lost with the disk.
    origin.send(&[page(visitor(1), 4), page(visitor(2), 5), origin.login(visitor(2), 6, "ann")]);
    let (_, lost) = publish(&origin);
    assert!(lost > before);
    let refused = place.run(&["restore", "--from", to, "--yes"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("stop it first"), "{refused:?}");
    origin.kill();
    assert_eq!(place.json(&["restore", "--from", to])["done"], false, "a plan comes first");
    assert_eq!(place.inspect(visitor(1))["own"]["pages"], 2);
    let done = place.json(&["restore", "--from", to, "--yes"]);
    assert!(std::path::Path::new(done["moved_to"].as_str().unwrap()).join("causeway.db").exists());

    let origin = place.serve();
    let found = place.inspect(visitor(1));
    assert_eq!((&found["own"]["pages"], &found["own"]["purchases"]), (&1.into(), &1.into()));
    let (mut again, after) = publish(&origin);
    let gone = format!("v:demo:{}", visitor(2));
    let mut keys: Vec<String> = keys.into_iter().chain([gone]).collect();
    keys.sort();
    again.sort();
    assert_eq!(again, keys, "all keys are published again, the later visitor's included");
    assert!(after > lost, "{after} over {lost}");
    assert!(after.counter > lost.counter, "an earlier acknowledgement is for no later lease");
    // Facts that the edge sends again count once.
    assert_eq!(origin.send(&[page(visitor(1), 1), page(visitor(1), 4)]).accepted, 2);
    assert_eq!(place.inspect(visitor(1))["own"]["pages"], 2);
    origin.kill();
    place.json(&["restore", "--from", to, "--yes"]);
    let (_, third) = publish(&place.serve());
    assert!(third > after, "each restore has a higher version than the previous one");
}

#[test]
fn a_backup_taken_while_facts_come_holds_what_was_acknowledged_before_it() {
    let place = Place::new();
    let origin = place.serve();
    let to = place.path().join("backup");
    let (acknowledged, over) = (AtomicU32::new(0), AtomicBool::new(false));
    let send = || {
        for n in (0..5_000).take_while(|_| !over.load(Ordering::SeqCst)) {
            origin.sync(&crate::support::request(&[page(visitor(n), n)]));
            acknowledged.store(n + 1, Ordering::SeqCst);
        }
    };
    let before = std::thread::scope(|scope| {
        let sending = scope.spawn(send);
        within(SOON, "some are sent", || {
            assert!(!sending.is_finished(), "the thread cannot send");
            once(acknowledged.load(Ordering::SeqCst), |sent| *sent >= 100)
        });
        let before = acknowledged.load(Ordering::SeqCst);
        place.json(&["backup", "--to", to.to_str().unwrap()]);
        over.store(true, Ordering::SeqCst);
        before
    });
    let all = acknowledged.into_inner();
    // Each thread sends its facts in order, so the backup holds a prefix of them.
    drop(origin);
    // The disk is lost, because a remaining log would add facts after the backup.
    std::fs::remove_dir_all(place.path().join("data")).unwrap();
    place.json(&["restore", "--from", to.to_str().unwrap(), "--yes"]);
    let token = place.token("viewer");
    let origin = place.serve();
    let known = |n| origin.admin(&token, &format!("visitors/{}?tenant=demo", visitor(n))).status == 200;
    let held: Vec<bool> = (0..all).map(known).collect();
    let up_to = held.iter().take_while(|held| **held).count();
    assert!(held.iter().skip(up_to).all(|held| !held), "a gap in the acknowledged facts");
    assert!((before as usize..=all as usize).contains(&up_to), "{up_to} of {before} to {all}");
}

#[test]
fn an_unreadable_store_is_replaced_and_codes_given_since_stay_given() {
    let place = Place::new();
    let origin = place.serve();
    let put = |what: &str| {
        let of = visitor(1).to_string();
        place.json(&["attributes", "put", &of, &format!(r#"{{"set": {{"{what}": 1}}}}"#), "--tenant", "demo"]);
    };
    origin.send(&[page(visitor(1), 1)]);
    put("age");
    let to = place.path().join("backup");
    let to = to.to_str().unwrap();
    place.json(&["backup", "--to", to]);
    put("vip");
    origin.kill();
    let first = place.json(&["restore", "--from", to, "--yes"]);
    put("city");
    let names = || -> Vec<String> {
        let all = place.json(&["attributes", "names", "--tenant", "demo"]);
        all.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(), ["age", "vip", "city"], "a code is never given to another name");
    // The replaced store can be restored too, with the facts that only its log held.
    let replaced = first["moved_to"].as_str().unwrap();
    place.json(&["restore", "--from", replaced, "--yes"]);
    assert_eq!(names(), ["age", "vip", "city"]);
    let origin = place.serve();
    let held = hold(&place, "causeway.db");
    origin.sync(&crate::support::request(&[page(visitor(1), 2)]));
    origin.kill();
    drop(held);
    let third = place.json(&["restore", "--from", to, "--yes"]);
    place.json(&["restore", "--from", third["moved_to"].as_str().unwrap(), "--yes"]);
    assert_eq!(place.inspect(visitor(1))["own"]["pages"], 2, "the fact that only the log's log held");

    std::fs::write(place.path().join("data/causeway.db"), vec![0x55; 9_000]).unwrap();
    place.json(&["restore", "--from", to, "--yes"]);
    assert_eq!(
        place.inspect(visitor(1))["own"]["pages"],
        2,
        "the log of the lost store still has the acknowledged facts"
    );
    // A half-restored data directory is not served.
    std::fs::create_dir(place.path().join("data/restoring")).unwrap();
    let refused = place.run(&["serve"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("run `causeway restore` again"), "{refused:?}");
    place.json(&["restore", "--from", to, "--yes"]);
    place.serve();
}

#[test]
fn a_token_that_was_revoked_since_the_backup_stays_revoked() {
    let place = Place::new();
    let token = |role: &str| place.json(&["token", "create", "--role", role, "--name", role, "--all-tenants"]);
    let text = |made: &serde_json::Value| made["token"].as_str().unwrap().to_owned();
    let number = |made: &serde_json::Value| made["id"].to_string();
    let (revoked, valid) = (token("privacy"), token("viewer"));
    let to = place.path().join("backup");
    let to = to.to_str().unwrap();
    place.json(&["backup", "--to", to]);
    place.json(&["token", "revoke", &number(&revoked)]);
    let since = token("operator");
    place.json(&["restore", "--from", to, "--yes"]);
    assert!(token("viewer")["id"].as_u64() > since["id"].as_u64(), "a number is never given twice");
    let origin = place.serve();
    let asks = |made| origin.admin(&text(made), "jobs").status;
    assert_eq!([&revoked, &valid, &since].map(asks), [401, 200, 200]);
}

/// Overwrites the root pages of these tables and indexes of the store.
fn damage(place: &Place, trees: &[&str]) {
    let path = place.path().join("data/causeway.db");
    let store = rusqlite::Connection::open(&path).unwrap();
    store.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let find = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let roots: Vec<u16> = trees.iter().map(|tree| store.query_row(find, [tree], |row| row.get(0)).unwrap()).collect();
    let size: u16 = store.pragma_query_value(None, "page_size", |row| row.get(0)).unwrap();
    drop(store);
    let mut bytes = std::fs::read(&path).unwrap();
    let pages = roots.into_iter().map(|root| usize::from(root - 1) * usize::from(size));
    pages.for_each(|at| bytes[at..][..usize::from(size)].fill(0x55));
    std::fs::write(&path, bytes).unwrap();
}

/// The unreadable parts that a restore reports in its JSON and on standard error.
fn unread(place: &Place, from: &str) -> Vec<String> {
    let done = place.run(&["restore", "--from", from, "--yes", "--output", "json"]);
    let message = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success(), "{message}");
    let plan: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let parts: Vec<String> = serde_json::from_value(plan["unread"].clone()).unwrap();
    assert!(parts.iter().all(|part| message.contains(&format!("`{part}` of the replaced store"))), "{message}");
    assert_eq!(message.matches("of the replaced store").count(), parts.len(), "{message}");
    parts
}

#[test]
fn a_damaged_page_loses_only_its_part_of_the_replaced_store() {
    let place = Place::new();
    let token = |name: &str| place.json(&["token", "create", "--role", "viewer", "--name", name, "--all-tenants"]);
    let made = [token("first"), token("second")];
    let revoke = |made: &serde_json::Value| place.json(&["token", "revoke", &made["id"].to_string()]);
    let asks = |origin: &Origin| made.each_ref().map(|m| origin.admin(m["token"].as_str().unwrap(), "jobs").status);
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1)]);
    let to = place.path().join("backup");
    let to = to.to_str().unwrap();
    place.json(&["backup", "--to", to]);
    origin.kill();
    assert_eq!(unread(&place, to), [""; 0]);
    revoke(&made[0]);
    // A damaged index of tokens or tenants loses nothing, because their tables have the same rows.
    damage(&place, &["lookups", "sqlite_autoindex_tokens_1", "sqlite_autoindex_tenants_1"]);
    std::fs::write(place.path().join("data/log.db"), vec![0x55; 9_000]).unwrap();
    assert_eq!(unread(&place, to), ["keys", "log"]);
    assert_eq!(asks(&place.serve()), [401, 200]);

    revoke(&made[1]);
    damage(&place, &["tokens", "tenants"]);
    let of_tenants = ["tenants", "catalogue", "spend", "offer_codes", "attribute_names", "sends", "keys"];
    assert_eq!(unread(&place, to), [&["tokens"], of_tenants.as_slice()].concat());
    assert_eq!(asks(&place.serve()), [200, 200], "the tokens of the backup, as the report says");
    std::fs::write(place.path().join("data/causeway.db"), vec![0x55; 9_000]).unwrap();
    assert_eq!(unread(&place, to), ["store"]);
}

#[test]
fn an_interrupted_restore_is_finished_by_another_with_the_same_data() {
    let place = Place::new();
    let data = place.path().join("data");
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1)]);
    let put = |what: &str| {
        let of = visitor(1).to_string();
        place.json(&["attributes", "put", &of, &format!(r#"{{"set": {{"{what}": 1}}}}"#), "--tenant", "demo"]);
    };
    put("age");
    publish(&origin);
    let to = place.path().join("backup");
    let to = to.to_str().unwrap();
    place.json(&["backup", "--to", to]);
    put("vip");
    origin.send(&[page(visitor(2), 1)]);
    let (_, highest) = publish(&origin);
    origin.kill();
    let mut names = vec!["age".to_owned(), "vip".to_owned()];
    let files = |ends: &[&str]| ends.iter().map(|end| format!("causeway.db{end}")).collect::<Vec<_>>();
    // The restore stopped after it had moved the store's file without its WAL; or all files; or after it had put the
    // new store in place.
    let cuts = [files(&[""]), [files(&["", "-wal", "-shm"]), vec!["log.db".to_owned()]].concat(), Vec::new()];
    for (n, moved) in cuts.into_iter().enumerate() {
        let aside = data.join(format!("before-restore-{}", n + 1));
        std::fs::create_dir(data.join("restoring")).unwrap();
        for file in moved.iter().filter(|file| data.join(file).exists()) {
            std::fs::create_dir_all(&aside).unwrap();
            std::fs::rename(data.join(file), aside.join(file)).unwrap();
        }
        let done = place.json(&["restore", "--from", to, "--yes"]);
        let origin = place.serve();
        put(&format!("city{n}"));
        let all = place.json(&["attributes", "names", "--tenant", "demo"]);
        let found: Vec<_> = all.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
        names.push(format!("city{n}"));
        assert_eq!(found, names, "a code is never given to another name");
        assert_eq!(done["moved_to"] == aside.to_str().unwrap(), !moved.is_empty(), "where the first restore put it");
        origin.kill();
    }
    let (keys, version) = publish(&place.serve());
    assert!(keys.contains(&format!("v:demo:{}", visitor(2))), "later visitors are published again: {keys:?}");
    assert!(version > highest);
}

#[test]
fn a_backup_that_fails_or_is_cut_leaves_nothing_that_is_in_the_way_of_the_next() {
    let place = Place::new();
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1)]);
    let to = place.path().join("backups/backup");
    let part = place.path().join("backups/backup.part");
    let text = to.to_str().unwrap().to_owned();
    // A limit on the size of files: a write fails, as on a full disk, or the process ends at it.
    let limited = |first: &str| {
        let program = env!("CARGO_BIN_EXE_causeway");
        let config = place.config();
        let run = format!(
            "{first}; ulimit -f 200; exec '{program}' --config '{}' backup --to '{text}'",
            config.to_str().unwrap()
        );
        std::process::Command::new("sh").args(["-c", &run]).output().unwrap()
    };
    let full = limited("trap '' XFSZ");
    let message = String::from_utf8_lossy(&full.stderr);
    assert!(message.contains("cannot copy") && message.contains(part.to_str().unwrap()), "{message}");
    assert!(!part.exists() && !to.exists());
    let cut = limited("true");
    assert_eq!(cut.status.code(), None, "{cut:?}");
    assert!(part.exists() && !to.exists());
    assert_eq!(place.json(&["backup", "--to", &format!("{text}/")])["visitors"], 1);
    assert!(!part.exists() && to.join("causeway.db").exists());

    // An existing folder is filled in place.
    std::fs::remove_dir_all(&to).unwrap();
    std::fs::create_dir_all(to.join(".part")).unwrap();
    std::fs::write(to.join(".part/causeway.db"), "half").unwrap();
    assert_eq!(place.json(&["backup", "--to", &text])["visitors"], 1);
    assert!(!to.join(".part").exists() && to.join("causeway.db").exists());
    // Foreign files are not deleted.
    std::fs::remove_dir_all(&to).unwrap();
    std::fs::create_dir_all(&part).unwrap();
    std::fs::write(part.join("letters"), "dear").unwrap();
    let refused = place.run(&["backup", "--to", &text]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("backup.part exists"), "{refused:?}");
    assert!(part.join("letters").exists());
}

#[test]
fn a_damaged_backup_is_refused_and_nothing_is_changed() {
    let place = Place::new();
    let origin = place.serve();
    (0..300).for_each(|n| drop(origin.send(&[page(visitor(n), n)])));
    let to = place.path().join("backup");
    place.json(&["backup", "--to", to.to_str().unwrap()]);
    origin.kill();
    let file = to.join("causeway.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 4_096].fill(0x55);
    std::fs::write(&file, bytes).unwrap();
    let refused = place.run(&["restore", "--from", to.to_str().unwrap(), "--yes"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("damaged"), "{refused:?}");
    assert_eq!(place.inspect(visitor(7))["own"]["pages"], 1);
}

#[test]
fn a_backup_is_two_files_with_their_digests_and_one_without_its_log_is_damaged() {
    let place = Place::new();
    place.token("viewer");
    let (to, data) = (place.path().join("backup"), place.path().join("data"));
    let text = to.to_str().unwrap();
    assert!(!data.join("log.db").exists(), "no origin has served from it yet");
    place.json(&["backup", "--to", text]);
    let files = |folder: &std::path::Path| {
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name()).collect();
        files.sort();
        files
    };
    assert_eq!(files(&to), ["causeway.db", "log.db", "manifest.json"]);
    let replaced = place.json(&["restore", "--from", text, "--yes"])["moved_to"].as_str().unwrap().to_owned();
    place.json(&["restore", "--from", &replaced, "--yes"]);
    place.serve().send(&[page(visitor(1), 1)]);
    std::fs::remove_file(to.join("log.db")).unwrap();
    for flags in [&[][..], &["--yes"]] {
        let refused = place.run(&[&["restore", "--from", text], flags].concat());
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(message.contains("the backup is damaged") && message.contains("log.db is missing"), "{message}");
    }
    assert_eq!(place.inspect(visitor(1))["own"]["pages"], 1);
}

#[test]
fn the_plan_of_a_restore_says_what_it_would_replace() {
    let place = Place::new();
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1)]);
    let (to, data) = (place.path().join("backup"), place.path().join("data"));
    let to = to.to_str().unwrap();
    let plan = || place.json(&["restore", "--from", to]);
    let held =
        |of: &serde_json::Value| ["visitors", "people", "unfolded_records"].map(|name| of[name].as_u64().unwrap());
    let first = place.json(&["backup", "--to", to]);
    origin.send(&[page(visitor(2), 2)]);
    assert_eq!(plan()["replaces"]["visitors"], 2, "in parallel with a serving origin");
    origin.kill();
    assert_eq!((held(&plan()), held(&plan()["replaces"])), ([1, 1, 0], [2, 2, 0]));
    // The current store is older than the backup.
    let second = place.path().join("second");
    place.json(&["backup", "--to", second.to_str().unwrap()]);
    place.json(&["restore", "--from", to, "--yes"]);
    let older = place.json(&["restore", "--from", second.to_str().unwrap()]);
    assert_eq!((&older["visitors"], held(&older["replaces"])), (&2.into(), [1, 1, 0]));
    assert_eq!(older["replaces"]["newest_ms"], first["newest_ms"]);

    std::fs::write(data.join("causeway.db"), vec![0x55; 9_000]).unwrap();
    let broken = plan();
    assert_eq!((&broken["replaces"], &broken["done"]), (&"cannot be read".into(), &false.into()));
    std::fs::remove_dir_all(&data).unwrap();
    assert!(plan()["replaces"].is_null());
    assert_eq!(place.json(&["restore", "--from", to, "--yes"])["replaces"], serde_json::Value::Null);
    assert_eq!(held(&plan()["replaces"]), [1, 1, 0]);
}

#[test]
fn a_backup_that_cannot_be_restored_leaves_a_store_that_serves() {
    let place = Place::new();
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1)]);
    let missing = place.path().join("nothing");
    let empty = place.command(&["backup", "--to", missing.to_str().unwrap()]).env("CAUSEWAY_DATA", &missing).output();
    let message = String::from_utf8(empty.unwrap().stderr).unwrap();
    assert!(message.contains("there is no store at"), "{message}");
    let to = place.path().join("backup");
    place.json(&["backup", "--to", to.to_str().unwrap()]);
    origin.kill();
    let restored = |flags: &[&str]| {
        let refused = place.run(&[&["restore", "--from", to.to_str().unwrap()], flags].concat());
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        String::from_utf8(refused.stderr).unwrap()
    };
    // A readable backup with a wrong schema: the fault shows only after the copy is migrated. Without its manifest, no
    // digest refuses it before.
    std::fs::remove_file(to.join("manifest.json")).unwrap();
    let backup = rusqlite::Connection::open(to.join("causeway.db")).unwrap();
    backup.execute_batch("ALTER TABLE attribute_names RENAME TO other_names").unwrap();
    assert!(restored(&["--yes"]).contains("attribute_names"));
    backup.pragma_update(None, "user_version", 9_999).unwrap();
    assert!(restored(&[]).contains("taken by a later release"), "the plan says so");
    assert_eq!(place.serve().send(&[page(visitor(1), 2)]).rejected.len(), 0);
    assert_eq!(place.inspect(visitor(1))["own"]["pages"], 2);
}

#[test]
fn a_backup_whose_bits_changed_is_neither_verified_nor_restored() {
    let place = Place::new();
    {
        let origin = place.serve();
        origin.send(&[page(visitor(1), 1)]);
    }
    let folder = place.path().join("backup");
    let to = folder.to_str().unwrap();
    place.json(&["backup", "--to", to]);
    let whole = place.json(&["backup", "verify", "--from", to]);
    assert_eq!(whole["unreadable_visitors"], 0);
    // A changed value in a row, which a check of the file's structure does not find.
    let conn = rusqlite::Connection::open(folder.join("causeway.db")).unwrap();
    conn.execute("UPDATE meta SET identity = zeroblob(16)", []).unwrap();
    drop(conn);
    for command in [&["backup", "verify", "--from", to][..], &["restore", "--from", to, "--yes"]] {
        let refused = place.run(command);
        assert_eq!(refused.status.code(), Some(1), "{command:?}");
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(message.contains("differs from the file that was backed up"), "{command:?}: {message}");
    }
    std::fs::remove_file(folder.join("manifest.json")).unwrap();
    assert!(!place.run(&["backup", "verify", "--from", to]).status.success());
}
