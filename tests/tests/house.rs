//! The house rules that a compiler does not check: bounds of files and functions, and documents that name what is there.
#![expect(clippy::unwrap_used, reason = "tests end at the first thing that is not so")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines of a source file, tests apart.
const FILE_LINES: usize = 500;
/// Lines of a function.
const FUNCTION_LINES: usize = 70;
/// Lines of the README.
const README_LINES: usize = 120;
/// What paths of ours begin with.
const FOLDERS: [&str; 6] = ["shared/", "edge/", "origin/", "tests/", "xtask/", "docs/"];
/// What names of files end with.
const ENDINGS: [&str; 9] = [".rs", ".mjs", ".js", ".md", ".toml", ".sql", ".json", ".py", ".patch"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Files that git tracks or would add, by a pattern of git, as they lie below the root.
fn tracked_files(pattern: &str) -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "--", pattern])
        .current_dir(root())
        .output()
        .unwrap();
    String::from_utf8(listed.stdout).unwrap().lines().map(PathBuf::from).collect()
}

/// Files that git tracks, by their ending, as they lie below the root.
fn tracked(ending: &str) -> Vec<PathBuf> {
    let found = tracked_files(&format!("*{ending}"));
    assert!(!found.is_empty(), "git lists no {ending} file");
    found
}

fn text_of(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// By its path below the root: what the folder of a checkout is called says nothing.
fn is_test(path: &Path) -> bool {
    assert!(path.is_relative(), "{}", path.display());
    path.components().any(|part| part.as_os_str().to_string_lossy().contains("test"))
}

/// Whether a line begins a function, whoever may call it and however.
fn begins_function(line: &str) -> bool {
    let mut rest = line;
    if let Some(after) = rest.strip_prefix("pub(") {
        rest = after.split_once(") ").map_or("", |(_, rest)| rest);
    }
    for word in ["pub ", "default ", "const ", "async ", "unsafe ", "extern \"C\" "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    rest.starts_with("fn ")
}

/// Functions of more lines than the bound: the first line's number, and how many there are.
fn long_functions(text: &str) -> Vec<(usize, usize)> {
    let (mut long, mut open) = (Vec::new(), Vec::<(usize, usize)>::new());
    for (number, line) in text.lines().enumerate() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        let begins = begins_function(code) && !code.ends_with([';', '}']);
        if code == "}"
            && let Some((first, of)) = open.last()
            && *of == indent
        {
            let lines = number - first + 1;
            long.extend((lines > FUNCTION_LINES).then_some((first + 1, lines)));
        }
        if begins || code == "}" {
            // What began as far to the right and had no end was a declaration, whose line was broken.
            open.retain(|(_, of)| *of < indent);
        }
        open.extend(begins.then_some((number, indent)));
    }
    long
}

/// Lines of a file but its inline tests. A `#[cfg(test)]` alone cuts nothing: it may stand at the top, before `mod tests;`.
fn lines_but_tests(text: &str) -> usize {
    let (before, tests) = text.split_once("\nmod tests {\n").unwrap_or((text, ""));
    let after = tests.split_once("\n}\n").map_or("", |(_, after)| after);
    before.lines().count() + after.lines().count()
}

#[test]
fn no_source_file_is_over_its_bound() {
    for ending in [".rs", ".mjs", ".js"] {
        for path in tracked(ending).iter().filter(|p| !is_test(p)) {
            let lines = lines_but_tests(&text_of(path));
            assert!(lines <= FILE_LINES, "{} has {lines} lines: split it where the data's way turns", path.display());
        }
    }
}

#[test]
fn only_the_tests_in_a_file_are_left_out_of_its_lines() {
    let code = "x;\n".repeat(9);
    let inline = "#[cfg(test)]\nmod tests {\n    use super::*;\n}\n";
    assert_eq!(lines_but_tests(&code), 9);
    assert_eq!(lines_but_tests(&format!("#[cfg(test)]\nmod tests;\n{code}")), 11);
    assert_eq!(lines_but_tests(&format!("{code}{inline}")), 10);
    assert_eq!(lines_but_tests(&format!("#[cfg(test)]\nuse x;\n{code}{inline}{code}")), 21);
}

#[test]
fn no_function_is_over_its_bound() {
    for path in tracked(".rs") {
        let long = long_functions(&text_of(&path));
        assert!(long.is_empty(), "{}: (line, lines) {long:?}", path.display());
    }
}

#[test]
fn a_function_over_its_bound_is_seen_however_it_begins() {
    let forms = [
        "fn f() {",
        "pub fn f(",
        "pub(crate) async fn f() {",
        "pub(super) const fn f() {",
        "pub(in crate::a) unsafe fn f() {",
        "const unsafe fn f() {",
        "pub extern \"C\" fn f() {",
    ];
    for form in forms {
        for (body, long) in [(FUNCTION_LINES - 2, vec![]), (FUNCTION_LINES - 1, vec![(1, FUNCTION_LINES + 1)])] {
            assert_eq!(long_functions(&format!("{form}\n{}}}\n", "    x;\n".repeat(body))), long, "{form}");
        }
    }
    // One in another, and a declaration without an end before both.
    let inner = format!("    fn inner() {{\n{}    }}\n", "        x;\n".repeat(FUNCTION_LINES));
    let text = format!("trait T {{\n    fn declared(\n    );\n}}\nfn outer() {{\n{inner}}}\n");
    assert_eq!(long_functions(&text), [(6, FUNCTION_LINES + 2), (5, FUNCTION_LINES + 4)]);
    for other in ["fn_pointer()", "let f = const { 1 };", "pub struct F {", "/// fn", "pub(crate) mod f {"] {
        assert!(!begins_function(other), "{other}");
    }
}

/// Every package that a choice of ours is built from, as often as with different features: `name version features`.
fn built_from(choice: &[&str]) -> BTreeSet<String> {
    let tree = ["tree", "--offline", "--locked", "--prefix", "none", "--no-dedupe", "--format", "{p} {f}"];
    let told = Command::new(env!("CARGO")).args(tree).args(choice).current_dir(root()).output().unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    String::from_utf8(told.stdout).unwrap().lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

/// Minutes of a first run: with other features a package, and all that depend on it, are built once more.
#[test]
fn what_the_unit_tests_are_built_from_serves_all_tests() {
    let package = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let unit = built_from(&["--workspace", "--exclude", "causeway-tests", "--edges", "normal,build,dev"]);
    let known: BTreeSet<String> = unit.iter().map(|line| package(line)).collect();
    for (name, edges) in [("causeway-sim", "normal,build"), ("causeway-tests", "normal,build,dev")] {
        let own = built_from(&["--package", name, "--edges", edges]);
        let anew: Vec<_> = own.difference(&unit).filter(|line| known.contains(&package(line))).collect();
        assert!(own.len() > 100 && anew.is_empty(), "{name} is built from {anew:?} anew");
    }
}

#[test]
fn the_deployment_guide_says_what_to_do_about_every_line_of_the_worker_s_log() {
    let guide = std::fs::read_to_string(root().join("docs/DEPLOY.md")).unwrap();
    let mut events = 0;
    for path in
        tracked(".rs").iter().filter(|path| path.parent().is_some_and(|folder| folder.ends_with("edge/src/worker")))
    {
        let text = text_of(path);
        for event in text.split("log_event(\"").skip(1).filter_map(|after| after.split('"').next()) {
            assert!(guide.contains(&format!("\n| `{event}` |")), "{}: {event}", path.display());
            events += 1;
        }
    }
    assert!(events >= 12, "{events}");
}

/// What a document says between backticks, each piece that could be a path.
fn named(text: &str) -> impl Iterator<Item = &str> {
    // Every odd piece between backticks is code.
    text.split('`').skip(1).step_by(2).filter(|code| !code.contains([' ', '*', '<', '\n']))
}

#[test]
fn the_readme_is_short_and_the_documents_name_what_is_there() {
    assert!(text_of(Path::new("README.md")).lines().count() <= README_LINES);
    for document in tracked(".md") {
        // The architecture names files of ours alone; a guide also files that its reader is to write.
        let all = document.ends_with("ARCHITECTURE.md");
        let is_path = |code: &str| {
            FOLDERS.iter().any(|folder| code.starts_with(folder))
                || all && ENDINGS.iter().any(|ending| code.ends_with(ending))
        };
        for path in named(&text_of(&document)).filter(|code| is_path(code)) {
            assert!(root().join(path).exists(), "{} names {path}, which is not there", document.display());
        }
    }
}

#[test]
fn the_edge_is_rust_but_for_what_browsers_run_and_one_module() {
    let outside_rust = [".js", ".mjs", ".cjs", ".ts", ".html"];
    let found: BTreeSet<String> = outside_rust
        .iter()
        .flat_map(|ending| tracked_files(&format!("edge/*{ending}")))
        .map(|path| path.display().to_string())
        .collect();
    let allowed = [
        "edge/demo/demo.html",
        "edge/src/worker/platform.mjs",
        "edge/tag/causeway.d.ts",
        "edge/tag/causeway.js",
        "edge/tag/consent.js",
        "edge/tag/debug.js",
        "edge/tag/decide.js",
        "edge/tag/events.js",
        "edge/tag/placements.js",
        "edge/tag/script.js",
        "edge/tag/settings.js",
        "edge/tag/viewability.js",
    ];
    assert_eq!(found, allowed.map(str::to_owned).into());
    let module_lines = text_of(Path::new("edge/src/worker/platform.mjs")).lines().count();
    assert!(module_lines <= 120, "platform.mjs has {module_lines} lines");
}

#[test]
fn the_stack_that_was_asked_for_is_the_one_in_use() {
    let depends = |manifest: &str, name: &str| {
        let key = |line: &str| line.split(['.', ' ', '=']).next() == Some(name);
        text_of(Path::new(manifest)).lines().any(key)
    };
    for (manifest, names) in [
        ("edge/Cargo.toml", ["worker", "wasm-bindgen"].as_slice()),
        ("shared/Cargo.toml", &["serde", "ciborium"]),
        ("origin/Cargo.toml", &["hyper", "hyper-util", "tokio", "rusqlite"]),
    ] {
        for name in names {
            assert!(depends(manifest, name), "{manifest} does not depend on {name}");
        }
    }
    for manifest in tracked("Cargo.toml") {
        assert!(!text_of(&manifest).contains("minicbor"), "{} names minicbor", manifest.display());
    }
}
