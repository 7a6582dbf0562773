//! House rules that the compiler does not check: the length of files, functions and comment lines, and documents that
//! name existing files.
#![expect(clippy::unwrap_used, reason = "a test ends at its first failure")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Maximum lines of a source file without its tests.
const FILE_LINES: usize = 500;
/// Maximum lines of a function.
const FUNCTION_LINES: usize = 70;
/// Maximum characters of a line of a comment. `cargo fmt` checks lines of code only.
const COMMENT_CHARACTERS: usize = 120;
/// Maximum lines of the README.
const README_LINES: usize = 120;
/// What paths of ours begin with.
const FOLDERS: [&str; 7] = ["shared/", "edge/", "origin/", "tests/", "bench/", "xtask/", "docs/"];
/// What names of files end with.
const ENDINGS: [&str; 9] = [".rs", ".mjs", ".js", ".md", ".toml", ".sql", ".json", ".py", ".patch"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Files that git tracks or would add, matching a pattern of git; paths are relative to the root.
fn tracked_files(pattern: &str) -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "--", pattern])
        .current_dir(root())
        .output()
        .unwrap();
    String::from_utf8(listed.stdout).unwrap().lines().map(PathBuf::from).collect()
}

/// Files with this ending that git tracks; paths are relative to the root.
fn tracked(ending: &str) -> Vec<PathBuf> {
    let found = tracked_files(&format!("*{ending}"));
    assert!(!found.is_empty(), "git lists no {ending} file");
    found
}

fn text_of(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Whether a file belongs to tests, by its path relative to the root; the name of the checkout's folder does not count.
fn is_test(path: &Path) -> bool {
    assert!(path.is_relative(), "{}", path.display());
    path.components().any(|part| part.as_os_str().to_string_lossy().contains("test"))
}

/// Whether a line begins a function, of any visibility and kind.
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

/// Functions over the bound: the number of the first line, and the number of lines.
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
            // An open function at the same or a deeper indent without an end was a declaration over several lines.
            open.retain(|(_, of)| *of < indent);
        }
        open.extend(begins.then_some((number, indent)));
    }
    long
}

/// Lines of a file without its inline tests. `#[cfg(test)]` alone cuts nothing: it may stand at the top, before `mod
/// tests;`.
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
            assert!(lines <= FILE_LINES, "{} has {lines} lines: split it where the subject changes", path.display());
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

/// Numbers of the lines that are comments over the bound. A row of a table cannot be wrapped and may be longer.
fn long_comments(text: &str) -> impl Iterator<Item = usize> {
    let is_long = |line: &str| {
        let comment = line.trim_start().strip_prefix("//").map(|text| text.trim_start_matches(['/', '!', ' ']));
        comment.is_some_and(|text| !text.starts_with('|')) && line.chars().count() > COMMENT_CHARACTERS
    };
    text.lines().enumerate().filter(move |(_, line)| is_long(line)).map(|(number, _)| number + 1)
}

#[test]
fn no_comment_line_is_over_its_bound() {
    let long = |path: PathBuf| {
        let lines: Vec<String> =
            long_comments(&text_of(&path)).map(|number| format!("{}:{number}", path.display())).collect();
        lines
    };
    let found: Vec<String> = tracked(".rs").into_iter().flat_map(long).collect();
    assert!(found.is_empty(), "wrap these comments at {COMMENT_CHARACTERS} characters:\n{}", found.join("\n"));
}

#[test]
fn a_comment_line_over_its_bound_is_found_at_any_indent() {
    let line = |start: &str, length: usize| format!("{start}{}", "é".repeat(length - start.len()));
    for start in ["//", "/// ", "    //! "] {
        let text = [line(start, COMMENT_CHARACTERS), line(start, COMMENT_CHARACTERS + 1)].join("\n");
        assert_eq!(long_comments(&text).collect::<Vec<_>>(), [2], "{start}");
    }
    for start in ["let text = ", "//! | "] {
        assert_eq!(long_comments(&line(start, 2 * COMMENT_CHARACTERS)).count(), 0, "{start}");
    }
}

#[test]
fn a_function_over_its_bound_is_found_however_it_begins() {
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
    // A function inside another one, after a declaration without a body.
    let inner = format!("    fn inner() {{\n{}    }}\n", "        x;\n".repeat(FUNCTION_LINES));
    let text = format!("trait T {{\n    fn declared(\n    );\n}}\nfn outer() {{\n{inner}}}\n");
    assert_eq!(long_functions(&text), [(6, FUNCTION_LINES + 2), (5, FUNCTION_LINES + 4)]);
    for other in ["fn_pointer()", "let f = const { 1 };", "pub struct F {", "/// fn", "pub(crate) mod f {"] {
        assert!(!begins_function(other), "{other}");
    }
}

/// Every package in the build of these packages, once for each set of features: `name version features`.
fn built_from(choice: &[&str]) -> BTreeSet<String> {
    let tree = ["tree", "--offline", "--locked", "--prefix", "none", "--no-dedupe", "--format", "{p} {f}"];
    let output = Command::new(env!("CARGO")).args(tree).args(choice).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

/// A package with other features is built a second time, with all that depend on it, which costs minutes in a first
/// run.
#[test]
fn all_tests_use_the_packages_of_the_unit_tests() {
    let package = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    const ALL_EDGES: &str = "normal,build,dev";
    let unit = built_from(&["--workspace", "--exclude", "causeway-tests", "--edges", ALL_EDGES]);
    let known: BTreeSet<String> = unit.iter().map(|line| package(line)).collect();
    let quick: Vec<&str> = ["causeway-shared", "causeway-edge", "causeway-origin"]
        .iter()
        .flat_map(|name| ["--package", name])
        .chain(["--edges", ALL_EDGES])
        .collect();
    let sim = ["--package", "causeway-sim", "--edges", "normal,build"];
    let end_to_end = ["--package", "causeway-tests", "--edges", ALL_EDGES];
    for choice in [&quick[..], &sim, &end_to_end] {
        let own = built_from(choice);
        let again: Vec<_> = own.difference(&unit).filter(|line| known.contains(&package(line))).collect();
        assert!(own.len() > 100 && again.is_empty(), "{choice:?} is built from {again:?} again");
    }
}

/// Versions of each package in a lockfile.
fn locked_versions(lockfile: &str) -> BTreeMap<String, BTreeSet<String>> {
    let text = text_of(Path::new(lockfile));
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in text.split("[[package]]\n").skip(1) {
        let field = |name: &str| package.split(&format!("{name} = \"")).nth(1).and_then(|rest| rest.split('"').next());
        versions.entry(field("name").unwrap().to_owned()).or_default().insert(field("version").unwrap().to_owned());
    }
    versions
}

/// A bench measures the code as it is shipped: with the project's dependencies, lints and profiles.
#[test]
fn the_benches_are_built_as_the_project_is() {
    let (project, benches) = (text_of(Path::new("Cargo.toml")), text_of(Path::new("bench/Cargo.toml")));
    let lines: BTreeSet<&str> = project.lines().collect();
    let (_, shared) = benches.split_once("[workspace.dependencies]\n").unwrap();
    let is_own = |line: &&str| line.starts_with('#') || line.starts_with("causeway-") && line.contains("path = ");
    let other: Vec<&str> = shared.lines().filter(|line| !is_own(line) && !lines.contains(line)).collect();
    assert!(other.is_empty(), "Cargo.toml has no such lines: {other:#?}");
    let of_project = locked_versions("Cargo.lock");
    for (name, versions) in locked_versions("bench/Cargo.lock") {
        if let Some(known) = of_project.get(&name) {
            assert!(
                !versions.is_disjoint(known),
                "{name}: bench/Cargo.lock has {versions:?}, Cargo.lock has {known:?}"
            );
        }
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

/// The code spans of a document that may be paths.
fn named(text: &str) -> impl Iterator<Item = &str> {
    // Every second piece between backticks is code.
    text.split('`').skip(1).step_by(2).filter(|code| !code.contains([' ', '*', '<', '\n']))
}

#[test]
fn the_readme_is_short_and_the_documents_name_existing_files() {
    assert!(text_of(Path::new("README.md")).lines().count() <= README_LINES);
    for document in tracked(".md") {
        // The architecture page names only files of the repository; a guide also names files that its reader writes.
        let all = document.ends_with("ARCHITECTURE.md");
        let is_path = |code: &str| {
            FOLDERS.iter().any(|folder| code.starts_with(folder))
                || all && ENDINGS.iter().any(|ending| code.ends_with(ending))
        };
        for path in named(&text_of(&document)).filter(|code| is_path(code)) {
            assert!(root().join(path).exists(), "{} names {path}, which does not exist", document.display());
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
fn the_required_libraries_are_in_use() {
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

/// Words with which an SQL statement that reads or writes rows begins.
const STATEMENTS: [&str; 6] = ["SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"];
/// Files of the origin with statements that they assemble from descriptors of tables.
const STATEMENTS_ELSEWHERE: [&str; 3] = [
    "origin/src/campaigns/catalogue/carried_rows.rs",
    "origin/src/maintenance/export/load.rs",
    "origin/src/maintenance/export/tables.rs",
];

/// Lines of a text with a string literal that begins with a statement of SQL; inline tests are left out.
fn lines_with_statements(text: &str) -> Vec<usize> {
    let code = text.split_once("\nmod tests {\n").map_or(text, |(before, _)| before);
    let begins = |literal: &str| {
        let literal = literal.trim_start_matches(|c: char| c.is_whitespace() || c == '\\');
        STATEMENTS.iter().any(|word| literal.strip_prefix(word).is_some_and(|rest| rest.starts_with([' ', '\n'])))
    };
    let quotes = code.match_indices('"').map(|(at, _)| at);
    quotes.filter(|at| begins(&code[at + 1..])).map(|at| code[..at].matches('\n').count() + 1).collect()
}

#[test]
fn statements_of_the_origin_stand_with_their_tables() {
    let mut elsewhere = BTreeSet::new();
    for path in tracked_files("origin/src/*.rs").iter().filter(|path| !is_test(path)) {
        let lines = lines_with_statements(&text_of(path));
        if lines.is_empty() || path.starts_with("origin/src/store/tables") {
            continue;
        }
        let path = path.display().to_string();
        assert!(
            STATEMENTS_ELSEWHERE.contains(&path.as_str()),
            "{path}: lines {lines:?} have SQL: move it to the module of its table in origin/src/store/tables/"
        );
        elsewhere.insert(path);
    }
    assert_eq!(elsewhere, STATEMENTS_ELSEWHERE.map(str::to_owned).into(), "a file of the list has no SQL any more");
}

#[test]
fn a_statement_is_found_however_its_literal_begins() {
    for literal in
        ["\"SELECT 1\"", "r#\"DELETE FROM a\"#", "\"\n    UPDATE a\"", "\"\\\n    WITH a\"", "\"INSERT\nINTO a\""]
    {
        assert_eq!(lines_with_statements(&format!("x\n{literal}\n")), [2], "{literal}");
    }
    for literal in ["\"DELETE\"", "\"SELECTED\"", "SELECT", "\"a SELECT 1\"", "x\"\nmod tests {\n    \"SELECT 1\"\n"] {
        assert_eq!(lines_with_statements(&format!("{literal}\n")), [0; 0], "{literal}");
    }
}

/// Test modules of a crate that its `tests/main.rs` does not declare, so that no command runs them.
fn undeclared(main: &str, stems: &[String]) -> Vec<String> {
    let is_declared = |stem: &&String| main.lines().any(|line| line.trim() == format!("mod {stem};"));
    stems.iter().filter(|stem| !is_declared(stem)).cloned().collect()
}

#[test]
fn every_test_file_of_a_merged_test_program_is_declared() {
    // The fuzz tests of `shared` are a program of their own.
    for (krate, own) in [("shared", &["main", "fuzz"][..]), ("edge", &["main"])] {
        let folder = format!("{krate}/tests");
        let is_module = |path: &PathBuf| path.parent() == Some(Path::new(&folder));
        let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
        let mut stems: Vec<String> = tracked(".rs").into_iter().filter(is_module).map(stem).collect();
        stems.retain(|stem| !own.contains(&stem.as_str()));
        assert!(stems.len() > 5, "{folder} has no test files");
        let missing = undeclared(&text_of(Path::new(&format!("{folder}/main.rs"))), &stems);
        assert!(missing.is_empty(), "{folder}/main.rs does not declare {missing:?}, so no command runs these tests");
    }
}

#[test]
fn a_test_file_that_is_not_declared_is_found() {
    let stems = ["laws".to_owned(), "golden".to_owned()];
    assert_eq!(undeclared("mod laws;\n// mod golden;\n", &stems), ["golden"]);
}
