//! The command line: exit codes, forms of output, and messages about a wrong configuration or key.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::support::{Place, page, visitor};

fn stderr(place: &Place, arguments: &[&str], code: i32) -> String {
    let output = place.run(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn exit_codes_are_0_1_and_2() {
    let place = Place::new();
    assert_eq!(place.run(&["config", "check"]).status.code(), Some(0));
    stderr(&place, &["token", "revoke", "77"], 1);
    stderr(&place, &["config", "chek"], 2);
    stderr(&place, &[], 2);
    stderr(&place, &["token", "create", "--role", "root"], 2);
}

#[test]
fn it_refuses_to_start_on_a_weak_or_missing_key_and_says_which() {
    let place = Place::new();
    let file = place.path().join("keys.json");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let mut keys: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    keys["tenants"]["pub"]["cookie"][0]["secret"] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".into();
    std::fs::write(&file, keys.to_string()).unwrap();
    let refusal = stderr(&place, &["serve"], 1);
    assert!(refusal.contains("tenants.pub.cookie: key 1 is weak"), "{refusal}");
    assert!(stderr(&place, &["config", "check"], 1).contains("key 1 is weak"));

    keys["tenants"].as_object_mut().unwrap().remove("pub");
    std::fs::write(&file, keys.to_string()).unwrap();
    assert!(stderr(&place, &["serve"], 1).contains("tenants.pub: this tenant has no keys"));
    let made = place.json(&["keys", "init"]);
    assert_eq!(made["made"].as_array().unwrap().len(), 2);
    assert_eq!(place.run(&["config", "check"]).status.code(), Some(0));

    std::fs::remove_file(&file).unwrap();
    assert!(stderr(&place, &["serve"], 1).contains("`causeway keys init` makes one"));
}

#[test]
fn a_wrong_configuration_is_told_line_by_line() {
    let place = Place::new();
    std::fs::write(place.config(), "listen = \"nowhere\"\nreaders = 900\n[[tenant]]\nname = \"A\"\nhosts = []\n")
        .unwrap();
    let refusal = stderr(&place, &["config", "check"], 1);
    for path in ["listen:", "readers:", "tenant[0].name:", "tenant[0].hosts:"] {
        assert!(refusal.contains(path), "{path} is missing in {refusal}");
    }
    std::fs::write(place.config(), "listn = 1\n").unwrap();
    assert!(stderr(&place, &["serve"], 1).contains("config reference"));
    std::fs::remove_file(place.config()).unwrap();
    assert!(stderr(&place, &["serve"], 1).contains("name another with --config"));
}

#[test]
fn the_workers_file_is_checked_against_the_number_of_queues() {
    let place = Place::new();
    let file = place.path().join("wrangler.toml");
    std::fs::write(&file, include_str!("../../../wrangler.toml")).unwrap();
    let check = ["config", "check", "--wrangler", file.to_str().unwrap()];
    assert_eq!(place.run(&check).status.code(), Some(0));
    let config = std::fs::read_to_string(place.config()).unwrap();
    std::fs::write(place.config(), format!("facts_queues = 2\n{config}")).unwrap();
    assert_eq!(place.run(&["config", "check"]).status.code(), Some(0), "only the configuration is checked");
    let refusal = stderr(&place, &check, 1);
    for line in ["wrangler.toml: queues.producers.FACTS_2: missing", "queue = \"causeway-facts-2\"", "2 problems"] {
        assert!(refusal.contains(line), "{line} is missing in {refusal}");
    }
    let edge = place.json(&["config", "edge"]);
    assert!(edge["CAUSEWAY_CONFIG"].as_str().unwrap().contains("\"facts_queues\":2"));
    stderr(&place, &["config", "check", "--wrangler", "nowhere.toml"], 1);
}

#[test]
fn the_reference_and_the_edges_part_are_printed() {
    let place = Place::new();
    let text = String::from_utf8(place.run(&["config", "reference"]).stdout).unwrap();
    for word in ["CAUSEWAY_LISTEN", "sibling_publish_s = 60", "The risk of `trusted`"] {
        assert!(text.contains(word), "{word}");
    }
    let edge = place.json(&["config", "edge"]);
    let printed = edge["CAUSEWAY_CONFIG"].as_str().unwrap();
    let config: causeway_shared::settings::config::EdgeConfig = serde_json::from_str(printed).unwrap();
    let loaded = causeway_origin::base::config::Config::load(place.config().as_ref(), |_| None).unwrap().edge;
    let what = |config| serde_json::to_value(config).unwrap();
    assert_eq!(what(&config), what(&loaded), "a default is not printed, and means the same");
    assert!(!printed.contains("tcf_purposes") && !printed.contains("null"), "{printed}");
    let keys: causeway_shared::keys::key_ring::KeySet =
        serde_json::from_str(edge["CAUSEWAY_KEYS"].as_str().unwrap()).unwrap();
    assert_eq!(keys, place.keys());
    // The output is JSON without --output json too, because a program reads it.
    let plain = place.run(&["config", "edge"]).stdout;
    assert_eq!(serde_json::from_slice::<Value>(&plain).unwrap(), edge);
}

#[test]
fn a_rotation_is_staged_and_no_secret_is_printed() {
    let place = Place::new();
    let step = |arguments: &[&str]| place.json(arguments);
    assert_eq!(step(&["keys", "rotate", "cookie", "--tenant", "pub"])["next"], 2);
    let promoted = step(&["keys", "rotate", "cookie", "--tenant", "pub"]);
    assert_eq!((&promoted["active"], &promoted["old"]), (&2.into(), &1.into()));
    let refusal = stderr(&place, &["keys", "retire", "cookie", "--tenant", "pub", "--id", "2"], 1);
    assert!(refusal.contains("key 2 is active"), "{refusal}");
    assert_eq!(step(&["keys", "retire", "cookie", "--tenant", "pub"])["retired"], 1);
    assert!(stderr(&place, &["keys", "rotate", "cookie"], 2).contains("--tenant NAME"));
    assert!(stderr(&place, &["keys", "rotate", "sync", "--tenant", "pub"], 2).contains("leave --tenant out"));
    let list = place.run(&["keys", "list"]);
    let all = String::from_utf8(list.stdout).unwrap() + &place.json(&["keys", "list"]).to_string();
    assert!(all.contains("alternate") && all.contains("dev-1"), "{all}");
    let keys: Value = serde_json::from_slice(&std::fs::read(place.path().join("keys.json")).unwrap()).unwrap();
    let secret = keys["sync"][0]["secret"].as_str().unwrap();
    assert!(!all.contains(secret));
}

#[test]
fn a_sync_key_in_rotation_is_read_before_it_is_written_and_after() {
    let place = Place::new();
    let before = place.serve();
    assert_eq!(before.send(&[page(visitor(1), 1)]).accepted, 1);
    place.json(&["keys", "rotate", "sync"]);
    place.json(&["keys", "rotate", "sync"]);
    // The new key is active in the file; an edge still signs with the previous key.
    drop(before);
    let after = place.serve();
    assert_eq!(after.send(&[page(visitor(1), 2)]).accepted, 1);
    let body = causeway_shared::wire::sync::encode_request(&crate::support::request(&[page(visitor(1), 3)]));
    let keys = place.keys();
    let old = keys.sync.by_id(1).unwrap();
    let time = crate::support::now();
    let mac = causeway_shared::keys::sync_auth::sign_sync(old, time, &body);
    let headers = [("x-causeway-key", "1".to_owned()), ("x-causeway-time", time.to_string()), ("x-causeway-mac", mac)];
    assert_eq!(after.call("POST", "/v1/sync", &headers, &body).status, 200);
}

#[test]
fn inspect_reads_beside_a_running_origin() {
    let place = Place::new();
    let none = stderr(&place, &["inspect", "visitor", &visitor(1).to_string(), "--tenant", "demo"], 1);
    assert!(none.contains("there is no store"), "{none}");
    let origin = place.serve();
    origin.send(&[page(visitor(1), 1), origin.login(visitor(1), 2, "m-1")]);
    assert_eq!(place.inspect(visitor(1))["own"]["pages"], 1);
    let lookup = place.json(&["inspect", "lookup", "member", "m-1", "--tenant", "demo"]);
    assert_eq!(lookup["visitor"], visitor(1).to_string());
    origin.send(&[origin.login(visitor(2), 1, "m-1")]);
    let person = place.json(&["inspect", "person", &visitor(2).to_string(), "--tenant", "demo"]);
    assert_eq!((&person["master"], &person["devices"]), (&visitor(1).to_string().into(), &2.into()), "{person}");
    assert_eq!((person["members"].as_array().unwrap().len(), &person["next"]), (2, &Value::Null));
    let table = place.run(&["inspect", "visitor", &visitor(1).to_string(), "--tenant", "demo"]).stdout;
    assert!(String::from_utf8(table).unwrap().lines().any(|l| l.contains("own.pages") && l.ends_with(" 1")));
    assert!(stderr(&place, &["inspect", "visitor", "abc", "--tenant", "demo"], 2).contains("invalid visitor id `abc`"));
}

#[test]
fn a_catalogue_is_checked_applied_listed_and_taken_back() {
    let place = Place::new();
    let (file, bad) = (place.path().join("ads.toml"), place.path().join("bad.json"));
    let ads = |weight: u32| {
        format!(
            "[[advertiser]]\nid = \"shoes\"\n[[campaign]]\nid = \"spring\"\nadvertiser = \"shoes\"\nbudget_micros = 5000000\n\
             [[ad_group]]\nid = \"red\"\ncampaign = \"spring\"\n[[ad]]\nid = \"runner\"\nad_group = \"red\"\n\
             creative = {{ title = \"Run\" }}\nlanding = \"https://shoes.example/\"\nweight = {weight}\n"
        )
    };
    std::fs::write(&file, ads(1)).unwrap();
    let file = file.to_str().unwrap();
    let demo = |arguments: &[&str]| place.json(&[&["catalogue"], arguments, &["--tenant", "demo"]].concat());
    assert_eq!(demo(&["check", file])["plan"]["codes"].as_array().unwrap().len(), 4);
    assert_eq!(demo(&["apply", file, "--dry-run"])["plan"]["changes"]["ad"]["added"][0], "runner");
    assert!(!place.path().join("data").exists(), "to look makes nothing");
    assert_eq!(demo(&["apply", file])["version"], 1);
    std::fs::write(file, ads(2)).unwrap();
    assert_eq!(demo(&["apply", file])["plan"]["changes"]["ad"]["changed"][0], "runner");
    assert_eq!(demo(&["show", "1"])["ad"][0]["weight"], 1);
    assert_eq!(demo(&["rollback", "1"])["version"], 1);
    let list = demo(&["list"]);
    assert_eq!(
        (&list[0]["current"], &list[1]["current"], &list[1]["by"]),
        (&false.into(), &true.into(), &"cli".into())
    );
    assert_eq!(demo(&["show"])["ad"][0]["code"], 1);
    let budgets = demo(&["budgets"]);
    assert_eq!((&budgets[0]["campaign"], &budgets[0]["left_micros"]), (&"spring".into(), &5_000_000.into()));
    assert_eq!(place.json(&["catalogue", "schema"])["properties"]["ad"]["type"], "array");

    std::fs::write(&bad, r#"{"ad":[{"id":"A","ad_group":"no","creative":{},"landing":"javascript:x"},{}]}"#).unwrap();
    let check = ["catalogue", "check", bad.to_str().unwrap(), "--tenant", "demo", "--output", "json"];
    let refused = place.run(&check);
    let problems: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!((refused.status.code(), &problems["problems"][0]["path"]), (Some(1), &"ad[1]".into()));
    stderr(&place, &["catalogue", "rollback", "9", "--tenant", "demo"], 1);
    stderr(&place, &["catalogue", "check", "/nowhere.toml", "--tenant", "demo"], 1);
}

#[test]
fn a_decision_is_explained_or_what_was_not_understood_is_said() {
    let place = Place::new();
    // The first call about a tenant finds a store without tenants.
    let _origin = place.serve();
    let id = visitor(1).to_string();
    let ask = |visitor: &str, placements: &str, code| {
        stderr(&place, &["explain", "--tenant", "pub", "--visitor", visitor, "--placements", placements], code)
    };
    let refusal = ask("me", "top", 2);
    assert!(refusal.contains("invalid visitor id `me`"), "{refusal}");
    for placement in ["top:7", "top:7x", "top:1x2:home:more", "top:1x2:home:7:more", "top:1x2/3"] {
        let refusal = ask(&id, placement, 2);
        assert!(refusal.contains(&format!("invalid placement `{placement}`")), "{refusal}");
    }
    stderr(&place, &["explain", "--visitor", &id], 2);
    let from = |from| stderr(&place, &["explain", "--visitor", &id, "--placements", "top", "--place", from], 2);
    assert!(["Germany", "D1", "DE-BE\nx"].map(from).iter().all(|refusal| refusal.contains("DE or DE-BE")));
    let placements = "top:728x90/970x250:home:500000,side";
    let result = place.json(&[
        "explain",
        "--tenant",
        "pub",
        "--visitor",
        &id,
        "--placements",
        placements,
        "--place",
        "de-be",
        "--agent",
        "Firefox",
    ]);
    assert_eq!(result["answer"]["decisions"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&result["answer"]["decisions"][1]["placement"], &result["differences"]),
        (&"side".into(), &Value::Null)
    );
    let shown = place.run(&["explain", "--tenant", "pub", "--visitor", &id, "--placements", "top,side"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(shown.matches("no_catalogue").count(), 2, "why nothing is placed: {shown}");
    let live = place.path().join("live.json");
    std::fs::write(&live, "{}").unwrap();
    let with =
        ["explain", "--tenant", "pub", "--visitor", &id, "--placements", "top", "--live", live.to_str().unwrap()];
    assert!(stderr(&place, &with, 1).contains("has no trace"));
}

#[test]
fn what_only_looks_changes_no_schema_and_makes_no_store() {
    let place = Place::new();
    let origin = place.serve();
    let token = place.token("viewer");
    assert!(!token.is_empty());
    drop(origin);
    let file = place.path().join("empty.toml");
    std::fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    let looks: [&[&str]; 6] = [
        &["token", "list"],
        &["attributes", "names", "--tenant", "pub"],
        &["catalogue", "list", "--tenant", "pub"],
        &["catalogue", "check", file, "--tenant", "pub"],
        &["catalogue", "apply", file, "--dry-run", "--tenant", "pub"],
        &["job", "list"],
    ];
    // A store with the version of an earlier release and the columns of this one: a migration would fail.
    let store = rusqlite::Connection::open(place.path().join("data/causeway.db")).unwrap();
    let version = || store.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap();
    let before = version() - 1;
    store.pragma_update(None, "user_version", before).unwrap();
    for arguments in looks {
        let ended = place.run(arguments);
        assert!(ended.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ended.stderr));
        assert_eq!(version(), before, "{arguments:?}");
    }
    let missing = place.path().join("missing");
    let ended = place.command(&["catalogue", "check", file, "--tenant", "pub"]).env("CAUSEWAY_DATA", &missing).output();
    assert!(ended.unwrap().status.success() && !missing.exists());
}

#[test]
fn a_folder_without_a_store_is_not_a_store_in_which_nobody_is() {
    let place = Place::new();
    for arguments in [
        &["erase", "--kind", "member", "--value", "m-1", "--person", "--tenant", "demo", "--yes", "--wait"][..],
        &["erase", "--kind", "member", "--value", "m-1", "--tenant", "demo"],
        &["catalogue", "list", "--tenant", "demo"],
        &["segments", "get", "member:ann", "--tenant", "demo"],
        &["job", "run", "retention"],
        &["token", "list"],
        &["token", "revoke", "1"],
    ] {
        let refusal = stderr(&place, arguments, 1);
        assert!(refusal.contains("there is no store at"), "{arguments:?}: {refusal}");
        assert!(!place.path().join("data").exists(), "{arguments:?}");
    }
    place.token("viewer");
    assert!(stderr(&place, &["catalogue", "list", "--tenant", "demo"], 1).contains("not found in the store"));
}

#[test]
fn an_argument_that_is_not_understood_is_usage() {
    let place = Place::new();
    let origin = place.serve();
    let segments =
        |of: &str, query: &str| place.run(&["segments", "get", of, "--tenant", "demo", "--query", query]).status.code();
    let of = visitor(1).to_string();
    origin.send(&[page(visitor(1), 1)]);
    assert_eq!([segments(&of, "{bad"), segments(&of, r#"{"oldest": 1}"#)], [Some(2); 2]);
    for arguments in [&["count", "x", "--tenant", "demo"][..], &["audience", "estimate", "x", "--tenant", "demo"]] {
        assert_eq!(place.run(arguments).status.code(), Some(2), "{arguments:?}");
    }
    assert_eq!(place.run(&["inspect", "visitor", "abc", "--tenant", "demo"]).status.code(), Some(2));
    let long = "x".repeat(200);
    for arguments in [
        &["token", "create", "--name", &long][..],
        &["inspect", "visitor", &of],
        &["inspect", "lookup", "nobody", "x", "--tenant", "demo"],
        &["segments", "get", "abc", "--tenant", "demo"],
        &["segments", "put", &of, r#"{"set":[],"remove":[]}"#, "--tenant", "demo"],
        &["segments", "extend", &of, "7", "0", "--tenant", "demo"],
        &["attributes", "put", &of, r#"{"set":{"shoe size":42}}"#, "--tenant", "demo"],
        &["links", "add", &of, &of, "--weight", "1", "--source", "match", "--tenant", "demo"],
        &["links", "add", &of, "--weight", "-1", "--source", "match", "--tenant", "demo"],
        &["links", "remove", &of, &of, "--tenant", "demo"],
        &["count", r#"{"visitor":"bad"}"#, "--tenant", "demo"],
        &["audience", "estimate", r#"{"foo":1}"#, "--tenant", "demo"],
        &["audience", "estimate", "{}", "--precision", "-1", "--tenant", "demo"],
        &["audience", "export", "{}", "--form", "parquet", "--tenant", "demo"],
        &["audience", "schedule", "{}", "--from", "nope", "--tenant", "demo"],
        &["audience", "materialise", "{}", "--segment", "7", "--hours", "0", "--tenant", "demo"],
        &["experiment", "plan", "--base", "-0.1", "--uplift", "0.1"],
        &["explain", &of, "--placements", "", "--tenant", "demo"],
        &["job", "run", "train", "--conversion", "nope", "--tenant", "demo"],
        &["erase", "--tenant", "demo"],
    ] {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(segments(&of, r#"{"newest": 1}"#), Some(0));
    assert_eq!(segments(&visitor(9).to_string(), r#"{"newest": 1}"#), Some(1), "a missing visitor is no usage error");
}

#[test]
fn what_fails_is_json_where_json_is_asked_for() {
    let place = Place::new();
    let json = |arguments: &[&str]| {
        let output = place.run(&[arguments, &["--output", "json"]].concat());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let reply: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert!(reply["error"]["message"].is_string(), "{reply}");
        serde_json::from_slice::<Value>(&output.stdout)
    };
    assert!(json(&["token", "list"]).is_err(), "nothing on standard output");
    let catalogue = place.path().join("catalogue.json");
    std::fs::write(&catalogue, r#"{ "advertiser": [{ "id": "" }] }"#).unwrap();
    place.token("viewer");
    let _origin = place.serve();
    let result = json(&["catalogue", "check", catalogue.to_str().unwrap(), "--tenant", "demo"]).unwrap();
    assert!(result["problems"][0]["path"].is_string(), "{result}");
    let text = std::fs::read_to_string(place.config()).unwrap();
    std::fs::write(place.config(), format!("readers = 900\n{text}")).unwrap();
    assert_eq!(json(&["config", "check"]).unwrap()["problems"][0]["path"], "readers");
}

#[test]
fn what_is_not_understood_is_json_where_json_is_asked_for() {
    let place = Place::new();
    for json in [&["--output", "json"][..], &["--output=json"]] {
        for arguments in [&["token", "create", "--role", "root"][..], &["token"], &["no-such-command"]] {
            let output = place.run(&[arguments, json].concat());
            assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]), "{arguments:?}");
            let reply: Value = serde_json::from_slice(&output.stderr).unwrap();
            let message = reply["error"]["message"].as_str().unwrap();
            assert!(!message.is_empty() && !message.starts_with("error:"), "{reply}");
        }
        for arguments in [&["--help"][..], &["--version"], &["token", "--help"]] {
            let output = place.run(&[arguments, json].concat());
            assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]), "{arguments:?}");
            assert!(!output.stdout.is_empty());
        }
    }
    let output = place.run(&["token", "create", "--role", "root"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stderr.starts_with(b"error: "), "text for users, as without JSON");
}

#[test]
fn of_keys_made_at_once_none_is_lost() {
    let place = Place::new();
    let rings = [("cookie", "pub"), ("alternate", "pub"), ("cookie", "demo"), ("alternate", "demo")];
    let made = rings.map(|(purpose, tenant)| {
        place.command(&["keys", "rotate", purpose, "--tenant", tenant]).stdout(std::process::Stdio::null()).spawn()
    });
    made.into_iter().for_each(|rotation| assert!(rotation.unwrap().wait().unwrap().success()));
    let listed = place.json(&["keys", "list"]);
    let next = listed.as_array().unwrap().iter().filter(|key| key["stage"] == "next").count();
    assert_eq!(next, 4, "{listed}");
}

#[test]
fn a_store_of_a_later_release_is_told_as_one() {
    let place = Place::new();
    place.token("viewer");
    let data = place.path().join("data");
    let conn = rusqlite::Connection::open(data.join("causeway.db")).unwrap();
    conn.pragma_update(None, "user_version", 999).unwrap();
    let to = place.path().join("backup");
    for arguments in
        [&["serve"][..], &["token", "create"], &["token", "list"], &["backup", "--to", to.to_str().unwrap()]]
    {
        let refusal = stderr(&place, arguments, 1);
        assert!(refusal.contains("a later release wrote the store"), "{arguments:?}: {refusal}");
    }
}

#[test]
fn no_command_of_a_later_release_changes_the_schema_of_who_serves() {
    let place = Place::new();
    let _origin = place.serve();
    let conn = rusqlite::Connection::open(place.path().join("data/causeway.db")).unwrap();
    let version = || conn.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0)).unwrap();
    let latest = version();
    conn.pragma_update(None, "user_version", latest - 1).unwrap();
    let id = visitor(1).to_string();
    for arguments in [&["token", "create"][..], &["erase", "--visitor", &id, "--tenant", "demo"]] {
        let refusal = stderr(&place, arguments, 1);
        assert!(refusal.contains("of an earlier release: restart it"), "{arguments:?}: {refusal}");
    }
    assert_eq!(version(), latest - 1);
    conn.pragma_update(None, "user_version", latest).unwrap();
}

#[test]
fn what_fails_makes_no_store_and_a_name_that_is_not_utf_8_is_taken() {
    use std::os::unix::ffi::OsStringExt as _;
    let place = Place::new();
    for arguments in [&["import", "segments", "nope.csv"][..], &["catalogue", "apply", "nope.toml"]] {
        stderr(&place, &[arguments, &["--tenant", "demo"]].concat(), 1);
    }
    assert!(!place.path().join("data").exists());
    drop(place.serve());
    let name = std::ffi::OsString::from_vec(b"people-\xff".to_vec());
    let to = place.path().join(name);
    let written = place.command(&["audience", "export", "{}", "--tenant", "demo", "--to"]).arg(&to).output().unwrap();
    assert!(written.status.success() && to.exists(), "{}", String::from_utf8_lossy(&written.stderr));
}

#[test]
fn another_program_s_file_under_the_store_s_name_is_left_alone() {
    let place = Place::new();
    let data = place.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let foreign = rusqlite::Connection::open(data.join("causeway.db")).unwrap();
    foreign.execute_batch("CREATE TABLE notes (text)").unwrap();
    assert!(stderr(&place, &["token", "create"], 1).contains("another program's"));
    let tables = foreign.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, u32>(0)).unwrap();
    assert_eq!(tables, 1);
}
