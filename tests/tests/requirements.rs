//! `docs/REQUIREMENTS.md` names existing tests: it has each row once, each row names a test, and each named test
//! exists.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

const DOCUMENT: &str = "docs/REQUIREMENTS.md";
/// Marks a part of a row that no test shows.
const NO_TEST: &str = "**no test**";
/// The crates as the document names them, and the folder of each crate's tests.
const CRATES: [(&str, &str); 8] = [
    ("shared", "shared/"),
    ("edge", "edge/"),
    ("origin", "origin/"),
    ("sim", "tests/sim/"),
    ("market", "bench/market/"),
    ("e2e", "tests/tests/"),
    ("platform", "tests/platform/"),
    ("browser", "tests/browser/"),
];

/// Ids of all rows, in the document's order.
fn row_ids() -> Vec<String> {
    let seeds = [("S1.", 11), ("S2.", 7), ("S3.", 10), ("S4.", 13), ("S5.", 9)];
    let faults = [("", 24), ("outside", 0), ("E", 20), ("C", 14), ("security-", 11)];
    let ids_of = |(prefix, last): (&str, u32)| {
        let numbers = (1..=last).map(move |number| format!("{prefix}{number}"));
        numbers.chain((last == 0).then(|| prefix.to_owned())).collect::<Vec<_>>()
    };
    seeds.into_iter().chain(faults).flat_map(ids_of).collect()
}

/// A row of a table: its id and its last cell.
struct Row<'a> {
    id: &'a str,
    tests: &'a str,
}

impl<'a> Row<'a> {
    /// Reads a line of the document; `None` for the heading of a table and for any other line.
    fn read(line: &'a str) -> Option<Self> {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").map(str::trim).collect();
        let (id, tests) = (*cells.first()?, *cells.last()?);
        (cells.len() == 4 && id != "row").then_some(Self { id, tests })
    }

    /// The tests that the row names, each as `crate: name`.
    fn names(&self) -> impl Iterator<Item = &'a str> {
        self.tests.split("<br>").filter(|part| !part.starts_with(NO_TEST)).map(|part| part.trim_matches('`'))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Text of the source files that git tracks or would add, by their path relative to the root.
fn source_files() -> BTreeMap<String, String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "--", "*.rs", "*.test.mjs"])
        .current_dir(root())
        .output()
        .unwrap();
    let paths = String::from_utf8(listed.stdout).unwrap();
    paths.lines().filter_map(|path| Some((path.to_owned(), std::fs::read_to_string(root().join(path)).ok()?))).collect()
}

/// Whether a test's name begins with the id of a row, such as `s3_04_`, `e15_` or `field_07_`.
fn begins_with_row_id(name: &str) -> bool {
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    let mut words = name.split('_');
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let number = first.trim_start_matches(['s', 'e', 'c']).trim_end_matches(['a', 'b', 'c']);
    (first.starts_with(['s', 'e', 'c']) && is_number(number))
        || (["field", "invariant", "issue"].contains(&first) && is_number(second))
}

/// Names of the test functions of a Rust file, and of the cases that it passes to a custom runner.
fn rust_tests(text: &str, found: &mut BTreeSet<String>) {
    let mut is_marked = false;
    for line in text.lines().map(str::trim_start) {
        is_marked |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let function = line.trim_start_matches("async ").strip_prefix("fn ");
        if let Some((name, _)) = function.filter(|_| is_marked).and_then(|rest| rest.split_once('(')) {
            found.insert(name.to_owned());
            is_marked = false;
        }
    }
    if text.contains("use causeway_tests::") {
        let is_case =
            |piece: &&str| piece.contains('_') && piece.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        found.extend(text.split('"').filter(is_case).map(str::to_owned));
    }
}

/// Titles of the tests of a file for Node's runner: after `test(`, or at the beginning of a list of cases.
fn node_tests(text: &str, found: &mut BTreeSet<String>) {
    for opening in ["test(\"", "test(`", "[\""] {
        let closing = if opening.ends_with('`') { '`' } else { '"' };
        for piece in text.split(opening).skip(1) {
            let title = piece.split(closing).next().unwrap_or_default();
            found.insert(without_placeholders(title));
        }
    }
}

/// A title with `*` in place of each `${…}`; several in a row become one `*`.
fn without_placeholders(title: &str) -> String {
    let mut shown = String::new();
    for (nth, piece) in title.split("${").enumerate() {
        let literal = if nth == 0 { piece } else { piece.split_once('}').map_or("", |(_, literal)| literal) };
        if nth > 0 && !shown.ends_with('*') {
            shown.push('*');
        }
        shown.push_str(literal);
    }
    shown
}

/// All names that a row may use.
struct Known {
    /// Names of tests by crate.
    tests: BTreeMap<&'static str, BTreeSet<String>>,
    files: BTreeMap<String, String>,
}

impl Known {
    fn of(files: BTreeMap<String, String>) -> Self {
        let mut tests = BTreeMap::new();
        for (name, folder) in CRATES {
            let found: &mut BTreeSet<String> = tests.entry(name).or_default();
            for (path, text) in files.iter().filter(|(path, _)| path.starts_with(folder)) {
                if path.ends_with(".rs") { rust_tests(text, found) } else { node_tests(text, found) }
            }
        }
        Self { tests, files }
    }

    /// Whether a test, a checker of the simulator or a bench has this name.
    fn has(&self, named: &str) -> bool {
        let Some((of, name)) = named.split_once(": ") else { return false };
        match (of, name.strip_prefix("checker ")) {
            ("sim", Some(checker)) => {
                let file = format!("/check/{checker}.rs");
                self.files.keys().any(|path| path.starts_with("tests/sim/") && path.ends_with(&file))
            }
            ("bench", _) => {
                let variant = format!("    {}(", camel_case(name));
                self.files.iter().any(|(path, text)| path.starts_with("bench/") && text.contains(&variant))
            }
            _ => self.tests.get(of).is_some_and(|tests| tests.contains(name)),
        }
    }

    /// Problems in the rows of a document, one line each.
    fn problems(&self, document: &str) -> Vec<String> {
        let rows: Vec<Row<'_>> = document.lines().filter_map(Row::read).collect();
        let mut problems = Vec::new();
        let ids: Vec<&str> = rows.iter().map(|row| row.id).collect();
        if ids != row_ids() {
            let wanted: BTreeSet<String> = row_ids().into_iter().collect();
            let missing = wanted.iter().filter(|id| !ids.contains(&id.as_str())).map(String::as_str);
            let unknown = ids.iter().filter(|id| !wanted.contains(**id)).copied();
            let found: Vec<&str> = missing.chain(unknown).collect();
            problems.push(format!("rows missing, unknown, repeated or out of order: {found:?}"));
        }
        for row in &rows {
            if row.names().next().is_none() {
                problems.push(format!("row {} names no test", row.id));
            }
            let unknown = row.names().filter(|named| !self.has(named));
            problems.extend(unknown.map(|named| format!("row {} names `{named}`, which does not exist", row.id)));
        }
        problems
    }
}

/// The name of an enum variant: `CountingApi` for `counting-api`.
fn camel_case(name: &str) -> String {
    let capitalised = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
    };
    name.split('-').map(capitalised).collect()
}

#[test]
fn every_requirement_names_tests_that_exist() {
    let document = std::fs::read_to_string(root().join(DOCUMENT)).unwrap();
    let problems = Known::of(source_files()).problems(&document);
    assert!(problems.is_empty(), "{DOCUMENT}:\n{}", problems.join("\n"));
}

#[test]
fn a_wrong_name_a_missing_row_and_a_row_without_a_test_are_found() {
    let files = [
        ("origin/src/fold.rs", "#[test]\nfn repeats_change_nothing() {}\nfn helper() {}"),
        ("tests/sim/src/check/views.rs", ""),
        ("bench/runner/src/main.rs", "enum Bench {\n    CountingApi(Options),\n}"),
        ("tests/browser/demo.test.mjs", "test(`one_of_${what}_counts`, async () => {});"),
    ];
    let known = Known::of(files.map(|(path, text)| (path.to_owned(), text.to_owned())).into());
    for named in
        ["origin: repeats_change_nothing", "sim: checker views", "bench: counting-api", "browser: one_of_*_counts"]
    {
        assert!(known.has(named), "{named}");
    }
    for named in [
        "origin: repeats_change_all",
        "origin: helper",
        "edge: repeats_change_nothing",
        "sim: checker pages",
        "bench: facts",
    ] {
        assert!(!known.has(named), "{named}");
    }
    let row = |id: &str, tests: &str| format!("| {id} | text | figure | {tests} |");
    let whole: Vec<String> =
        row_ids().iter().map(|id| row(id, "`sim: checker views`<br>**no test** of a part")).collect();
    assert_eq!(known.problems(&whole.join("\n")), [""; 0]);
    assert_eq!(known.problems(&whole[1..].join("\n")).len(), 1, "a row is missing");
    assert_eq!(known.problems(&[&whole[..1], &whole].concat().join("\n")).len(), 1, "a row is there twice");
    for tests in ["`origin: planted_wrong_name`", "**no test**"] {
        let planted = [&[row("S1.1", tests)], &whole[1..]].concat();
        assert_eq!(known.problems(&planted.join("\n")).len(), 1, "{tests}");
    }
}

#[test]
fn no_test_is_named_by_the_id_of_a_row() {
    let known = Known::of(source_files());
    let numbered: Vec<&String> = known.tests.values().flatten().filter(|name| begins_with_row_id(name)).collect();
    assert!(numbered.is_empty(), "{DOCUMENT} maps rows to tests: {numbered:#?}");
    for words in [["s4", "02", "counts"], ["s4a", "the", "visitor"], ["e15", "an", "order"], ["field", "07", "a"]] {
        assert!(begins_with_row_id(&words.join("_")), "{words:?}");
    }
    for name in ["a_sync_and_its_answer", "cookie_payloads", "segments_expire", "fields_of_a_person"] {
        assert!(!begins_with_row_id(name), "{name}");
    }
}
