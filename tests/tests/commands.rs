//! The project's commands as a user at a terminal sees them.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test ends at its first failure")]

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use causeway_tests::world::{self, World};
use causeway_tests::{Process, eventually, within};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process};

/// `cargo xtask dev` on these ports (0 means a free port) in a separate folder.
fn dev(data: &Path, [edge, origin]: [u16; 2]) -> Command {
    let xtask = std::env::var("CAUSEWAY_XTASK").expect("run these tests through `cargo xtask test e2e`");
    let mut command = Command::new(xtask);
    command.args(["dev", "--edge-port", &edge.to_string(), "--origin-port", &origin.to_string()]);
    command.arg("--data").arg(data).stdin(Stdio::null());
    command
}

/// The single line with which a command fails.
fn only_line(Output { status, stdout, stderr }: Output) -> String {
    assert_eq!((status.code(), stdout.len()), (Some(1), 0));
    let line = String::from_utf8(stderr).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    line
}

#[test]
fn a_port_in_use_is_one_line_that_says_which_flag_chooses_another() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    for (flag, ports) in [("--edge-port", [port, 0]), ("--origin-port", [0, port])] {
        let line = only_line(dev(&folder.path().join("data"), ports).output().unwrap());
        assert!(line.starts_with(&format!("error: port {port} is taken: ")) && line.contains(flag), "{line}");
    }
}

#[test]
fn a_missing_compiler_is_one_line_before_anything_is_built() {
    let folder = tempfile::tempdir().unwrap();
    let cargo = env!("CARGO");
    for (name, compiler) in [("PATH", "cc"), ("CC", "/nowhere/clang")] {
        let mut command = dev(&folder.path().join("data"), [0, 0]);
        // As if nothing was built before; only cargo is found.
        command.env_remove("CAUSEWAY_EDGE_BUILD").env_remove("CC").env("CARGO", cargo);
        command.env(name, if name == "CC" { compiler } else { "" });
        let line = only_line(command.output().unwrap());
        assert!(line.starts_with(&format!("error: no C compiler: `{compiler}` is not on PATH; install one")), "{line}");
    }
}

#[test]
fn ctrl_c_stops_both_and_leaves_nothing_running() {
    let folder = tempfile::tempdir().unwrap();
    let [ready, stdout, stderr] = ["ready.json", "stdout", "stderr"].map(|name| folder.path().join(name));
    let mut command = dev(&folder.path().join("data"), [0, 0]);
    command.arg("--ready-file").arg(&ready);
    command.stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
    // A terminal sends its signal to the whole foreground process group.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let child = command.spawn().unwrap();
    let group = Pid::from_child(&child);
    let mut running = Process::new(child, Signal::INT);
    let ready_file = world::read_ready_file(&mut running, &ready);
    let [edge, origin] = ["edge_url", "origin_url"].map(|name| ready_file[name].as_str().unwrap().to_owned());
    let pids =
        ["edge", "origin"].map(|name| Pid::from_raw(ready_file["pids"][name].as_i64().unwrap().try_into().unwrap()));
    let lives = |pid: Option<Pid>| test_kill_process(pid.unwrap()).is_ok();
    let answers = |url: &str| TcpStream::connect(url.trim_start_matches("http://")).is_ok();
    assert!(pids.into_iter().all(lives) && answers(&edge) && answers(&origin));

    kill_process_group(group, Signal::INT).unwrap();
    let status = within(Duration::from_secs(60), "it ends", || running.ended());
    let [printed, errors] = [stdout, stderr].map(|file| std::fs::read_to_string(file).unwrap());
    assert_eq!((status.code(), errors.lines().last()), (Some(0), Some("stopped")), "{errors}");
    assert!(!pids.into_iter().any(lives) && !answers(&edge) && !answers(&origin) && !ready.exists());
    // It printed the contents of the ready file.
    for name in ["origin_url", "admin_token", "explain_key"] {
        assert!(printed.contains(ready_file[name].as_str().unwrap()), "{name}: {printed}");
    }
    assert!(printed.contains(&format!("{}/demo", edge.replace("127.0.0.1", "localhost"))), "{printed}");
}

#[test]
fn a_second_run_installs_and_builds_nothing_again() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let made = || {
        let binary = std::env::var("CAUSEWAY_ORIGIN_BIN").unwrap();
        let build = std::env::var("CAUSEWAY_EDGE_BUILD").unwrap();
        let build = ["engine_bg.wasm", "engine.js", "causeway.mjs", "stamp"].map(|name| Path::new(&build).join(name));
        let installed = [".tools/.crates.toml", "node_modules/.causeway-lock.json"].map(|name| root.join(name));
        let files = build.into_iter().chain(installed).chain([binary.into()]);
        files.map(|file| std::fs::metadata(file).unwrap().modified().unwrap()).collect::<Vec<_>>()
    };
    let before = made();
    let output = Command::new(std::env::var("CAUSEWAY_XTASK").unwrap()).arg("build").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(made(), before);
}

/// The fenced blocks of a document in one language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(document)).unwrap();
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// A file that is removed when its holder is dropped.
struct OwnFile(std::path::PathBuf);

impl Drop for OwnFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn the_files_of_the_deployment_guide_are_accepted_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let all = blocks("docs/DEPLOY.md", "toml");
    let block = |what: &str| all.iter().find(|block| block.contains(what)).unwrap();
    let at = folder.path().display().to_string();
    let origin = block("[[tenant]]").replace("/var/lib/causeway", &at).replace("/etc/causeway", &at);
    let config = folder.path().join("causeway.toml");
    std::fs::write(&config, origin).unwrap();
    let causeway = |arguments: &[&str]| {
        let mut command = Command::new(std::env::var("CAUSEWAY_ORIGIN_BIN").unwrap());
        let output = command.arg("--config").arg(&config).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    causeway(&["keys", "init"]);
    causeway(&["config", "check"]);
    let secrets = folder.path().join("edge.json");
    std::fs::write(&secrets, causeway(&["config", "edge"])).unwrap();
    // Next to wrangler.toml, with the routes at the end, as in the guide.
    let worker = std::fs::read_to_string(root.join("wrangler.toml")).unwrap() + "\n" + block("[[routes]]");
    let production = OwnFile(root.join(format!("wrangler.production-{}.toml", std::process::id())));
    std::fs::write(&production.0, worker).unwrap();
    let output = Command::new(std::env::var("CAUSEWAY_NODE").unwrap())
        .arg(std::env::var("CAUSEWAY_WRANGLER").unwrap())
        .args(["deploy", "--dry-run", "-c"])
        .arg(&production.0)
        .arg("--secrets-file")
        .arg(&secrets)
        .arg("--outdir")
        .arg(folder.path().join("bundle"))
        .env("WRANGLER_LOG_PATH", folder.path().join("logs"))
        .current_dir(&root)
        .output()
        .unwrap();
    let output_text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{output_text}");
    // Wrangler reports a key that ended up in the previous table as an unexpected field.
    assert!(!output_text.contains("Unexpected fields"), "{output_text}");
    for binding in ["env.PROFILES", "env.FACTS", "env.STRICT_CAPS", "env.OFFERS", "env.MINT_LIMIT"] {
        assert!(output_text.contains(binding), "{binding}: {output_text}");
    }
}

#[test]
fn every_command_of_the_readme_works() {
    let world = World::start();
    let (browser, folder) = (world.browser(), format!("{}/", world.data.display()));
    std::fs::write(world.data.join("ads.toml"), blocks("docs/TAG.md", "toml").remove(0)).unwrap();
    let member = browser.view_as("123", &world.proof("demo", "123"))["visitor"].clone();
    eventually("the login is known", || (world.lookup("demo", "123") == member).then_some(()));
    let mut ran = Vec::new();
    for line in blocks("README.md", "sh").iter().flat_map(|block| block.lines()) {
        let command = line.split(" #").next().unwrap().trim();
        if let Some(call) = command.strip_prefix("curl -s ") {
            let path = call.split("http://localhost:8787").nth(1).unwrap();
            let (path, body) = path.split_once(" -d ").unwrap_or((path, ""));
            let method = if body.is_empty() { "GET" } else { "POST" };
            let answer = browser.send(method, path, &[], body.trim_matches('\'').as_bytes());
            assert!(answer.status < 300, "{command}: {answer:?}");
            assert!(!path.ends_with("/events") || answer.json()["accepted"] == 1, "{command}: {answer:?}");
            ran.push("curl");
        } else if let Some(arguments) = command.strip_prefix("target/release/causeway ") {
            let arguments = arguments.replace(".dev/", &folder);
            let output = Command::new(std::env::var("CAUSEWAY_ORIGIN_BIN").unwrap())
                .args(arguments.split(' '))
                .output()
                .unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && !output.stdout.is_empty(), "{command}: {errors}");
            ran.push("causeway");
        } else {
            // The test runs inside the one command, and the other one started this crate.
            assert!(matches!(command, "cargo xtask dev" | "cargo xtask test"), "{command}");
        }
    }
    assert_eq!(["curl", "causeway"].map(|of| ran.iter().filter(|ran| **ran == of).count()), [4, 9]);
}
