//! Every command of `docs/DEPLOY.md` that needs no Cloudflare account, run by bash as written in the guide.
//!
//! Commands that change the machine (`useradd`, `systemctl`, `runuser`, owners of files) are shell functions with the
//! same effect in a folder of the test. Commands that need an account are checked against the help text of wrangler.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test ends at its first failure")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use causeway_tests::world::World;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const GUIDE: &str = "docs/DEPLOY.md";
const VISITOR: &str = "019ab000-0000-7000-8000-000000000001";
const OTHER: &str = "019ab000-0000-7000-8000-000000000002";

/// A text from each block of commands that a test runs.
const RUN: [&str; 19] = [
    "cargo xtask build ",
    "useradd",
    "as keys init",
    "openssl rand",
    "jq --arg k",
    "systemctl daemon-reload",
    "import segments",
    "as backup --to",
    "as data check",
    "job run trim",
    "as export --to",
    "job run reconcile --dry-run",
    "wrangler kv namespace create",
    "--secrets-file edge.json",
    "systemctl restart causeway\n",
    "/healthz            # on the origin",
    r#"'{"placements":[{"id":"top"}]}'"#,
    "MEMBER=smoke-",
    "as links check",
];

/// Replaces the guide's machine by a folder. `$ROOT` is the folder, `$PORT` the origin's port.
const MACHINE: &str = r#"
set -euo pipefail
PATH="$ROOT/usr/local/bin:$PATH"
mkdir -p "$ROOT/usr/local/bin" "$ROOT/log"
cargo() { [ "$1" = xtask ] && shift && "$CAUSEWAY_XTASK" "$@"; }
useradd() { [ "${!#}" = causeway ]; }
install() {
  local rest=()
  while [ $# -gt 0 ]; do
    case $1 in -o|-g) [ "$2" = causeway ]; shift 2 ;; *) rest+=("$1"); shift ;; esac
  done
  command install "${rest[@]}"
}
runuser() { [ "$1 $2 $3" = "-u causeway --" ]; shift 3; "$@" | tee "$ROOT/log/last"; }
origin() { printf 'http://127.0.0.1:%s' "$PORT"; }
systemctl() {
  case $1 in
    daemon-reload) ;;
    stop) kill -TERM "$(cat "$ROOT/pid")"; while kill -0 "$(cat "$ROOT/pid")" 2>/dev/null; do command sleep 0.05; done ;;
    restart) systemctl stop causeway; systemctl start causeway ;;
    start|enable)
      [ "${!#}" = causeway ]
      "$ROOT/usr/local/bin/causeway" --config "$CAUSEWAY_CONFIG_FILE" serve >>"$ROOT/log/origin" 2>&1 </dev/null &
      echo $! >"$ROOT/pid"
      command curl -s -o "$ROOT/log/ready" --retry 300 --retry-connrefused --retry-delay 0 --retry-max-time 30 --fail "$(origin)/readyz" ;;
    *) echo "unknown: systemctl $*" >&2; return 1 ;;
  esac
}
curl() { command curl --fail-with-body "$@" | tee -a "$ROOT/log/answers"; echo >>"$ROOT/log/answers"; }
wrangler() {
  case " $* " in
    *" --dry-run "*) "$CAUSEWAY_NODE" "$CAUSEWAY_WRANGLER" "$@" --outdir "$ROOT/bundle" ;;
    *" secret bulk "*) jq -e .CAUSEWAY_KEYS >"$ROOT/log/secrets"; echo "$*" >>"$ROOT/log/account" ;;
    *) echo "$*" >>"$ROOT/log/account" ;;
  esac
}
"#;

/// The guide's fenced blocks of shell commands, in order.
fn shell_blocks() -> Vec<String> {
    let text = std::fs::read_to_string(checkout().join(GUIDE)).unwrap();
    text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// The block that contains this text of [`RUN`].
fn block_with(text: &str) -> String {
    assert!(RUN.contains(&text), "{text}");
    let blocks = shell_blocks();
    let mut found = blocks.iter().filter(|block| block.contains(text));
    let block = found.next().unwrap_or_else(|| panic!("no block of {GUIDE} has: {text}"));
    assert!(found.next().is_none(), "two blocks of {GUIDE} have: {text}");
    block.clone()
}

/// The first fenced block of this language that contains this text.
fn file_with(language: &str, text: &str) -> String {
    let guide = std::fs::read_to_string(checkout().join(GUIDE)).unwrap();
    let fence = format!("```{language}\n");
    let blocks = guide.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.into_iter().find(|block| block.contains(text)).unwrap().to_owned()
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// A folder in place of the machine, and the script of the guide's blocks.
struct Machine {
    folder: TempDir,
    port: u16,
    /// Next to `wrangler.toml`, as in the guide, under a name that no other run uses.
    production: PathBuf,
    script: String,
}

impl Machine {
    fn new(port: u16) -> Self {
        for tool in ["bash", "jq", "openssl", "curl"] {
            let found = Command::new(tool).arg("--version").stdout(Stdio::null()).status();
            assert!(
                found.is_ok(),
                "this test runs the guide's commands and needs {tool} (Debian: apt-get install {tool})"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let production = checkout().join(format!("wrangler.production-{}-{port}.toml", std::process::id()));
        Self { folder, port, production, script: MACHINE.to_owned() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path("log").join(name)).unwrap_or_default()
    }

    /// Appends commands of the test.
    fn prepare(&mut self, commands: &str) {
        writeln!(self.script, "{commands}").unwrap();
    }

    /// Appends commands of the guide; `words` are the values that a reader fills in.
    fn run(&mut self, block: &str, words: &[(&str, &str)]) {
        let root = self.folder.path().display().to_string();
        let mut block = block.to_owned();
        for (word, value) in words {
            assert!(block.contains(word), "{word} is not in this block of {GUIDE}:\n{block}");
            block = block.replace(word, value);
        }
        for folder in ["/etc/causeway", "/var/lib/causeway", "/usr/local/bin", "/backup", "/export"] {
            block = block.replace(folder, &format!("{root}{folder}"));
        }
        let production = self.production.file_name().unwrap().to_str().unwrap();
        let block = block.replace("127.0.0.1:8788", &format!("127.0.0.1:{}", self.port));
        let block = block.replace("wrangler.production.toml", production);
        writeln!(self.script, "{block}").unwrap();
    }

    /// Runs the script and asserts that each command succeeded.
    fn finish(&self, env: &[(&str, &str)]) {
        let output = Command::new("bash")
            // The last lines of the trace show the command that failed.
            .args(["-x", "-c", &self.script])
            .env("ROOT", self.folder.path())
            .env("PORT", self.port.to_string())
            .envs(env.iter().copied())
            .current_dir(checkout())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let trace = String::from_utf8_lossy(&output.stderr);
        let tail: Vec<_> = trace.lines().rev().take(30).collect();
        let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
        assert!(output.status.success(), "{tail}\n{}", String::from_utf8_lossy(&output.stdout));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.production);
        let pid = std::fs::read_to_string(self.path("pid")).ok().and_then(|pid| pid.trim().parse().ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The calls of wrangler in the guide's sentences. A call with `…` is incomplete and left out.
fn inline_calls_of_wrangler() -> Vec<String> {
    let text = std::fs::read_to_string(checkout().join(GUIDE)).unwrap();
    let spans = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    // The option `--wrangler` of a command of ours names wrangler's file.
    let spans = spans.filter(|span| !span.contains("--wrangler"));
    let calls = spans.filter_map(|span| span.rsplit_once("wrangler ").map(|(_, call)| call.to_owned()));
    calls.filter(|call| !call.contains('…')).collect()
}

/// Checks that every command word and flag of these calls is in the help text of wrangler.
fn assert_known_to_wrangler(calls: &BTreeSet<String>) {
    for call in calls {
        let words: Vec<_> = call.split(' ').collect();
        let depth = match words[0] {
            "login" | "deploy" | "tail" | "rollback" => 1,
            "kv" => 3,
            "queues" if words[1] == "consumer" => 4,
            _ => 2,
        };
        let output = Command::new(std::env::var("CAUSEWAY_NODE").unwrap())
            .arg(std::env::var("CAUSEWAY_WRANGLER").unwrap())
            .args(&words[..depth])
            .arg("--help")
            .output()
            .unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let command = words[..depth].join(" ");
        assert!(help.contains(&format!("wrangler {command}")), "no such command: {command}\n{help}");
        for flag in words[depth..].iter().filter(|word| word.starts_with('-')) {
            let is_word = |word: &str| word.trim_end_matches(',') == *flag;
            assert!(help.split_whitespace().any(is_word), "{command} has no flag {flag}\n{help}");
        }
    }
}

#[test]
fn no_block_of_the_guide_is_left_out() {
    let is_untested = |block: &&String| !RUN.iter().any(|text| block.contains(text));
    assert_eq!(shell_blocks().iter().find(is_untested), None);
}

/// Rotates each kind of key once, like the table of part 7.
fn rotate_keys(machine: &mut Machine) {
    for purpose in ["sync", "cookie --tenant pub", "alternate --tenant pub", "webhook --tenant pub"] {
        // Webhooks have no key before the first rotation.
        let first = if purpose.starts_with("webhook") { &["rotate", "rotate"][..] } else { &[] };
        for step in [first, &["rotate", "rotate", "retire"]].concat() {
            machine.prepare(&format!("as keys {step} {purpose}"));
            machine.run(&block_with("systemctl restart causeway\n"), &[]);
        }
    }
}

#[test]
fn the_guide_s_commands_set_up_and_operate_an_origin() {
    let mut machine = Machine::new(free_port());
    let root = machine.folder.path().display().to_string();
    let listen = format!("127.0.0.1:{}", machine.port);
    let config = file_with("toml", "[[tenant]]").replace("127.0.0.1:8788", &listen);
    let config = config.replace("/var/lib", &format!("{root}/var/lib")).replace("/etc/", &format!("{root}/etc/"));
    std::fs::write(machine.path("causeway.toml"), &config).unwrap();
    let elsewhere = config.replace("/var/lib/causeway", "/var/lib/elsewhere");
    std::fs::write(machine.path("elsewhere.toml"), elsewhere).unwrap();
    let routes = file_with("toml", "[[routes]]");
    let worker = std::fs::read_to_string(checkout().join("wrangler.toml")).unwrap();
    std::fs::write(&machine.production, format!("{worker}\n{routes}")).unwrap();
    // The files that the guide's imports name, in the formats that it states.
    let segments = format!("visitor,segment,expires_ms\n{VISITOR},7,4102444800000\n");
    std::fs::write(machine.path("audiences.csv"), segments).unwrap();
    let events = format!(
        "{{\"visitor\":\"{VISITOR}\",\"type\":\"page\",\"id\":\"1\"}}\n{{\"visitor\":\"{OTHER}\",\"type\":\"page\",\"id\":\"2\"}}\n"
    );
    std::fs::write(machine.path("history.ndjson"), events).unwrap();

    machine.run(&block_with("cargo xtask build "), &[]);
    machine.run(&block_with("useradd"), &[]);
    machine.prepare("cp \"$ROOT/causeway.toml\" \"$ROOT/etc/causeway/causeway.toml\"");
    machine.run(&block_with("as keys init"), &[]);
    machine.prepare("openssl genpkey -algorithm ed25519 -out \"$ROOT/publisher.pem\"");
    // Both kinds of proof keys, one after the other; the second replaces the first.
    for line in block_with("openssl rand").lines().rev() {
        machine.run(line, if line.contains("pem") { &[("publisher.pem", "\"$ROOT/publisher.pem\"")] } else { &[] });
        machine.prepare("cp \"$ROOT/etc/causeway/keys.json\" \"$ROOT/keys.before\"");
        machine.run(&block_with("jq --arg k"), &[]);
        if line.contains("pem") {
            machine.prepare("cp \"$ROOT/keys.before\" \"$ROOT/etc/causeway/keys.json\"");
        }
    }
    machine.run(&block_with("systemctl daemon-reload"), &[]);
    machine.prepare("gzip -k \"$ROOT/audiences.csv\" \"$ROOT/history.ndjson\"");
    let files =
        [("audiences.csv.zst", "\"$ROOT/audiences.csv.gz\""), ("history.ndjson.gz", "\"$ROOT/history.ndjson.gz\"")];
    machine.run(&block_with("import segments"), &files);
    machine.run(&block_with("as backup --to"), &[("DATE", "$(date +%F)")]);
    machine.run(&block_with("as data check"), &[]);
    machine.run(&block_with("job run trim"), &[("job show 12", "job show 1"), ("jobs/12", "jobs/1")]);
    let import = "CAUSEWAY_CONFIG_FILE=\"$ROOT/elsewhere.toml\" as import everything";
    machine.run(&block_with("as export --to"), &[("as import everything", import)]);
    machine.run(&block_with("job run reconcile --dry-run"), &[]);
    for path in ["healthz", "readyz", "metrics"] {
        let guide = std::fs::read_to_string(checkout().join(GUIDE)).unwrap();
        let command = format!("curl -s http://127.0.0.1:8788/{path}");
        assert!(guide.contains(&format!("`{command}`")), "{command}");
        machine.run(&command, &[]);
    }
    machine.run(&block_with("wrangler kv namespace create"), &[]);
    machine.run(&block_with("--secrets-file edge.json"), &[("edge.json", "\"$ROOT/edge.json\"")]);
    rotate_keys(&mut machine);
    machine.prepare("as keys list\nas token list\nas token revoke 1");
    machine.finish(&[]);

    let account = machine.log("account");
    assert_eq!(account.lines().filter(|call| call.starts_with("queues create")).count(), 3, "{account}");
    let mut calls: BTreeSet<String> = account.lines().map(str::to_owned).collect();
    calls.extend(inline_calls_of_wrangler());
    assert_known_to_wrangler(&calls);
    assert!(machine.log("answers").contains(r#"{"ready":true}"#), "{}", machine.log("answers"));
    assert!(machine.path("bundle/platform.js").exists(), "the dry run bundled the worker");
    assert!(std::fs::read_dir(machine.path("export")).unwrap().count() == 1);
}

/// Replaces `sleep`: waits until the origin has the events of the smoke test and has published everything.
const SETTLE: &str = r#"
ask() { command curl -sf -H "authorization: Bearer $TOKEN" "$(origin)/admin/v1/$1?tenant=demo"; }
sleep() {
  local visitor
  until visitor=$(ask "lookups/member/$MEMBER" | jq -er .visitor) &&
    ask "visitors/$visitor" | jq -e '.own.pages == 1 and .own.purchases == 1' >"$ROOT/log/settled" &&
    command curl -s "$(origin)/metrics" | awk '/^causeway_(unfolded_facts|outbox_depth) / { sum += $2 } END { exit sum != 0 }'
  do
    if ((SECONDS > 60)); then echo "the smoke test's events do not arrive" >&2; exit 1; fi
    command sleep 0.1
  done
}
"#;

#[test]
fn the_guide_s_smoke_test_and_erasures_run_against_a_world() {
    let world = World::start();
    let port = world.origin.rsplit(':').next().unwrap().parse().unwrap();
    let mut machine = Machine::new(port);
    let config = world.data.join("causeway.toml");
    machine.prepare(SETTLE);
    machine.prepare("as() { causeway \"$@\" | tee \"$ROOT/log/last\"; }");
    machine.prepare("ln -s \"$CAUSEWAY_ORIGIN_BIN\" \"$ROOT/usr/local/bin/causeway\"");
    let edge = world.edge.as_str();
    machine.run(&block_with("/healthz            # on the origin"), &[("https://ads.pub.example", edge)]);
    machine.run(&block_with(r#"'{"placements":[{"id":"top"}]}'"#), &[("https://ads.pub.example", edge)]);
    let keys: serde_json::Value =
        serde_json::from_slice(&std::fs::read(world.data.join("keys.json")).unwrap()).unwrap();
    let proof = &keys["tenants"]["demo"]["proof"][0];
    let [kid, key] = ["kid", "key"].map(|name| proof[name].as_str().unwrap_or_else(|| panic!("{proof}")));
    let smoke = block_with("MEMBER=smoke-");
    let words = [
        ("https://ads.pub.example", edge),
        ("TENANT=pub", "TENANT=demo"),
        ("KID=2026-11", &format!("KID={kid}")),
        ("…base64 of the HS256 secret…", key),
        ("CONSENT='C…'", "CONSENT="),
        ("cwt_…", world.token.as_str()),
        ("/admin/v1/lookups/member/$MEMBER", "/admin/v1/lookups/member/$MEMBER?tenant=demo"),
    ];
    machine.prepare("cd \"$ROOT\"");
    machine.run(&smoke, &words);
    // The next part links, unlinks and erases the visitors of the smoke test.
    let visitors = r#"
readarray -t VISITORS < <(jq -r '.visitor // empty' "$ROOT/log/answers" | awk '!seen[$0]++' | tail -2)
MEMBER_ID=$MEMBER V1=${VISITORS[0]} V2=${VISITORS[1]}
until ask "visitors/$V2" >"$ROOT/log/arrived"; do
  if ((SECONDS > 60)); then echo "the second visitor does not arrive" >&2; exit 1; fi
  command sleep 0.1
done
printf 'visitor,other,weight,source\n%s,%s,0.5,match\n' "$V1" "$V2" >matches.csv
"#;
    machine.prepare(visitors);
    let erasing = block_with("as links check");
    let words = [
        ("VISITOR OTHER", "\"$V1\" \"$V2\""),
        ("--tenant pub", "--tenant demo"),
        ("--visitor V --kind", "--visitor \"$V1\" --kind"),
        ("--value M ", "--value \"$MEMBER_ID\" "),
        ("RECEIPT=…", "RECEIPT=$(grep -oE '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' \"$ROOT/log/erased\" | head -1)"),
        ("tenant=pub", "tenant=demo"),
        ("--yes --wait", "--yes --wait >\"$ROOT/log/erased\""),
    ];
    machine.run(&erasing, &words);
    let config = config.display().to_string();
    machine.finish(&[("CAUSEWAY_CONFIG_FILE", &config)]);

    let answers: Vec<serde_json::Value> =
        machine.log("answers").lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let person = |n: usize| answers.iter().filter(|answer| answer["decisions"].is_array()).nth(n).unwrap();
    // The first answer belongs to the call without a consent signal.
    assert_eq!((&person(1)["person"]["new_visitor"], &person(1)["person"]["devices"]), (&true.into(), &1.into()));
    assert_eq!((&person(2)["person"]["bridged"], &person(2)["person"]["devices"]), (&true.into(), &2.into()));
    let me = answers.iter().find(|answer| answer["own"].is_object()).unwrap();
    assert_eq!((&me["own"]["pages"], &me["own"]["purchases"]), (&1.into(), &1.into()));
    assert!(answers.iter().any(|answer| answer["done_ms"].is_u64()), "{answers:?}");
}
