//! The layers of each crate: a room uses itself and the rooms below it, and no two files use each other in a circle.
//!
//! The text of the sources is searched for `use` declarations and for paths that begin with `crate::` or `super::`.
//! Modules that exist only for tests are left out. An import that a macro makes is not found.
#![expect(clippy::unwrap_used, reason = "a test ends at its first failure")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The rooms of the origin, from the bottom up.
const ORIGIN: [&str; 16] = [
    "base",
    "store",
    "ingest",
    "outbox",
    "erasures",
    "profiles",
    "identity",
    "campaigns",
    "views",
    "audience",
    "privacy",
    "kv",
    "pipeline",
    "maintenance",
    "jobs",
    "api",
];

/// The rooms of the shared crate, from the bottom up.
const SHARED: [&str; 11] =
    ["base", "facts", "settings", "keys", "consent", "profiles", "identity", "targeting", "audience", "ads", "wire"];

/// The rooms of the edge, from the bottom up.
const EDGE: [&str; 9] = ["site", "http", "cache", "state", "objects", "routes", "engine", "sync", "worker"];

/// A source file of a crate: its module path, and its text without comments and tests.
struct SourceFile {
    name: String,
    module: Vec<String>,
    code: String,
}

/// The sources of a crate, without modules that exist only for tests.
fn sources(krate: &str) -> Vec<SourceFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(krate).join("src");
    let mut files = Vec::new();
    collect(&root, &mut Vec::new(), &mut files);
    assert!(files.len() > 10, "{} has no sources", root.display());
    let tests: BTreeSet<Vec<String>> = files.iter().flat_map(test_modules).collect();
    files.retain(|file| !(1..=file.module.len()).any(|n| file.module.get(..n).is_some_and(|of| tests.contains(of))));
    files.iter_mut().for_each(|file| file.code = without_tests(&file.code));
    files
}

fn collect(folder: &Path, module: &mut Vec<String>, files: &mut Vec<SourceFile>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            module.push(stem);
            collect(&path, module, files);
            module.pop();
        } else if path.extension().is_some_and(|ending| ending == "rs") && stem != "main" {
            let mut of = module.clone();
            of.extend((stem != "mod" && stem != "lib").then_some(stem));
            let text = std::fs::read_to_string(&path).unwrap();
            files.push(SourceFile { name: path.display().to_string(), module: of, code: without_comments(&text) });
        }
    }
}

fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The modules in separate files that a file declares only for tests.
fn test_modules(file: &SourceFile) -> Vec<Vec<String>> {
    let (mut found, mut is_test) = (Vec::new(), false);
    for line in file.code.lines().map(str::trim) {
        let declared = line.strip_suffix(';').and_then(|line| line.rsplit_once("mod ")).map(|(_, name)| name);
        match declared {
            Some(name) if is_test => found.push([&file.module[..], &[name.to_owned()]].concat()),
            _ => {}
        }
        is_test = line == "#[cfg(test)]" || is_test && line.starts_with("#[");
    }
    found
}

/// The code before the tests at the end of a file.
fn without_tests(code: &str) -> String {
    let mut code_lines = Vec::new();
    let mut lines = code.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" {
            let rest: Vec<&str> =
                lines.clone().take_while(|line| line.starts_with("#[") || line.ends_with('{')).collect();
            if rest.iter().any(|line| line.starts_with("mod ") && line.ends_with('{')) {
                break;
            }
        }
        code_lines.push(line);
    }
    code_lines.join("\n")
}

/// The modules that a file names, as paths from the crate's root.
fn used(file: &SourceFile) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    for (at, _) in file.code.match_indices("crate::").chain(file.code.match_indices("super::")) {
        let before = file.code.get(..at).unwrap_or_default();
        if before.ends_with(is_word) || before.ends_with("::") {
            continue;
        }
        let mut rest = file.code.get(at..).unwrap_or_default();
        let mut base = Vec::new();
        if let Some(after) = rest.strip_prefix("crate::") {
            rest = after;
        } else {
            base = file.module.clone();
            while let Some(after) = rest.strip_prefix("super::") {
                rest = after;
                base.pop();
            }
        }
        expand(&base, rest, &mut found);
    }
    found
}

/// Reads one path, or the tree in braces at its end; returns the rest of the text.
fn expand<'t>(base: &[String], text: &'t str, found: &mut BTreeSet<Vec<String>>) -> &'t str {
    let (mut path, mut rest) = (base.to_vec(), text.trim_start());
    loop {
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if !word.is_empty() && word != "self" {
            path.push(word.to_owned());
        }
        let Some(next) = after.strip_prefix("::") else {
            if let Some(mut inner) = after.strip_prefix('{').filter(|_| word.is_empty()) {
                while !inner.trim_start().starts_with('}') && !inner.is_empty() {
                    inner = expand(&path, inner, found).trim_start();
                    inner = inner.split_once([',', '}']).map_or("", |(skipped, left)| {
                        if inner.get(skipped.len()..).is_some_and(|end| end.starts_with('}')) { "}" } else { left }
                    });
                }
                return inner.trim_start().strip_prefix('}').unwrap_or_default();
            }
            found.insert(path);
            return after;
        };
        rest = next;
    }
}

/// Imports that lead from a room to one above it.
fn upward(files: &[SourceFile], rooms: &[&str]) -> Vec<String> {
    let height = |module: &[String]| rooms.iter().position(|room| module.first().is_some_and(|first| first == room));
    let mut found = Vec::new();
    for file in files {
        for path in used(file) {
            if let (Some(from), Some(to)) = (height(&file.module), height(&path))
                && to > from
            {
                found.push(format!("{} uses {}", file.name, path.join("::")));
            }
        }
    }
    found
}

#[test]
fn no_room_uses_a_room_above_it() {
    for (krate, layers) in [("shared", &SHARED[..]), ("edge", &EDGE[..]), ("origin", &ORIGIN[..])] {
        let files = sources(krate);
        let rooms: BTreeSet<&str> = files.iter().filter_map(|file| file.module.first()).map(String::as_str).collect();
        let unknown: Vec<_> = rooms.iter().filter(|room| **room != "cli" && !layers.contains(room)).collect();
        assert!(unknown.is_empty(), "{krate}: rooms without a layer: {unknown:?}; add them from the bottom up");
        let found = upward(&files, layers);
        assert!(found.is_empty(), "{krate}: {} upward imports:\n{}", found.len(), found.join("\n"));
    }
}

fn planted(name: &str, code: &str) -> SourceFile {
    let module = name.split("::").map(str::to_owned).collect();
    SourceFile { name: name.to_owned(), module, code: without_tests(&without_comments(code)) }
}

#[test]
fn an_upward_import_is_found_in_every_form() {
    let rooms = ["ground", "roof"];
    for code in [
        "use crate::roof::tile;",
        "use crate::{ground, roof::{self, tile}};",
        "fn f() { crate::roof::tile() }",
        "pub use crate::roof as top;",
        "use super::super::roof;",
        "#[cfg(test)]\nmod tests;\nuse crate::roof::tile;",
    ] {
        assert!(!upward(&[planted("ground::floor", code)], &rooms).is_empty(), "{code}");
    }
    for code in ["// crate::roof", "use crate::ground::floor;", "#[cfg(test)]\nmod tests {\n    use crate::roof;\n}"] {
        assert_eq!(upward(&[planted("ground::floor", code)], &rooms), Vec::<String>::new(), "{code}");
    }
}

/// Groups of files that use each other in a circle, by name.
fn cycles(files: &[SourceFile]) -> Vec<Vec<String>> {
    let by_module: BTreeMap<&[String], usize> =
        files.iter().enumerate().map(|(n, file)| (&file.module[..], n)).collect();
    let arrows: Vec<BTreeSet<usize>> = files
        .iter()
        .enumerate()
        .map(|(n, file)| {
            let target = |path: &Vec<String>| (0..=path.len()).rev().find_map(|len| by_module.get(path.get(..len)?));
            used(file).iter().filter_map(target).copied().filter(|to| *to != n).collect()
        })
        .collect();
    let reached: Vec<BTreeSet<usize>> = (0..files.len()).map(|from| reach(&arrows, from)).collect();
    let (mut seen, mut groups) = (BTreeSet::new(), Vec::new());
    for n in 0..files.len() {
        let group: BTreeSet<usize> = reached[n].iter().copied().filter(|to| reached[*to].contains(&n)).collect();
        if group.len() > 1 && seen.insert(group.clone()) {
            groups.push(group.into_iter().map(|of| files[of].name.clone()).collect());
        }
    }
    groups
}

fn reach(arrows: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(next) = open.pop() {
        open.extend(arrows[next].iter().copied().filter(|to| found.insert(*to)));
    }
    found
}

#[test]
fn no_two_files_of_a_crate_use_each_other_in_a_circle() {
    for krate in ["shared", "edge", "origin"] {
        let found = cycles(&sources(krate));
        assert!(found.is_empty(), "{krate}: {} circles:\n{found:#?}", found.len());
    }
}

#[test]
fn a_circle_of_files_is_found() {
    let files = [
        planted("a", "use crate::b::X;"),
        planted("b", "use super::c;"),
        planted("c", "fn f() { crate::a::g() }"),
        planted("d", "use crate::a;"),
    ];
    assert_eq!(cycles(&files), [["a", "b", "c"]]);
}
