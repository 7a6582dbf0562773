//! The words of the code: a type name stands for one type of a crate, and phrases that the glossary rules out occur in
//! no comment and no document (docs/STYLE.md, docs/GLOSSARY.md).
#![expect(clippy::unwrap_used, reason = "tests end at the first fault")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Phrases of an earlier private language. Single words that are right elsewhere are not listed.
const RULED_OUT: [&str; 10] = [
    "anew",
    "goes by of",
    "nobody's",
    "of before",
    "of whom",
    "so many",
    "told of",
    "what it takes",
    "whom a filter means",
    "whosesoever",
];

/// Documents that quote the ruled-out phrases in order to rule them out, or that record past names.
const QUOTING: [&str; 3] = ["docs/STYLE.md", "docs/GLOSSARY.md", "CHANGELOG.md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// All files below a folder with one of these endings, without build products.
fn files(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    const BUILT: [&str; 6] = ["target", "node_modules", ".git", ".tools", "build", ".dev"];
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if !BUILT.contains(&name) {
                files(&path, endings, found);
            }
        } else if path.extension().is_some_and(|ending| endings.iter().any(|wanted| ending == *wanted)) {
            found.push(path);
        }
    }
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs" | "testing.rs")))
        || path.file_stem().is_some_and(|stem| stem.to_str().unwrap().ends_with("_tests"))
}

/// The name that a line declares as a struct, an enum or a trait.
fn declared_type(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub") || *word == "unsafe");
    matches!(words.next()?, "struct" | "enum" | "trait").then_some(())?;
    let name = words.next()?;
    let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len());
    name.get(..end).filter(|name| !name.is_empty())
}

/// Type names that stand for two types or more, each with its places.
fn shared_names(sources: &[(String, String)]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, text) in sources {
        let product = text.split("\n#[cfg(test)]\nmod tests").next().unwrap();
        for name in product.lines().filter_map(declared_type) {
            places.entry(name).or_default().push(path);
        }
    }
    let shared = places.into_iter().filter(|(_, places)| places.len() > 1);
    shared.map(|(name, places)| format!("{name}: {}", places.join(", "))).collect()
}

#[test]
fn a_type_name_stands_for_one_type_of_a_crate() {
    for krate in ["shared", "edge", "origin"] {
        let mut paths = Vec::new();
        files(&root().join(krate).join("src"), &["rs"], &mut paths);
        paths.retain(|path| !is_test(path.strip_prefix(root()).unwrap()));
        let read = |path: PathBuf| (path.display().to_string(), std::fs::read_to_string(&path).unwrap());
        let sources: Vec<(String, String)> = paths.into_iter().map(read).collect();
        assert!(sources.len() > 30, "{krate} has no sources");
        let found = shared_names(&sources);
        assert!(found.is_empty(), "{krate}: give each of these types a name of its own:\n{}", found.join("\n"));
    }
}

#[test]
fn a_type_name_of_two_types_is_found_in_every_form() {
    let source = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    for second in ["pub struct Row {", "pub(crate) enum Row<T> {", "    trait Row: Copy {", "struct Row(u8);"] {
        assert_eq!(shared_names(&[source("a.rs", "struct Row;"), source("b.rs", second)]), ["Row: a.rs, b.rs"]);
    }
    let tests = "struct Cell;\n#[cfg(test)]\nmod tests {\n    struct Row;\n}";
    assert!(shared_names(&[source("a.rs", "struct Row;"), source("b.rs", tests)]).is_empty());
}

/// Ruled-out phrases in a text, as whole words.
fn ruled_out(text: &str) -> Vec<&'static str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let occurs = |phrase: &&str| {
        text.match_indices(*phrase).any(|(at, _)| {
            let before = text.get(..at).and_then(|text| text.chars().next_back());
            let after = text.get(at + phrase.len()..).and_then(|text| text.chars().next());
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
    };
    RULED_OUT.into_iter().filter(occurs).collect()
}

/// The endings of the files with prose, each with the mark that begins a comment. Without a mark, the whole file is
/// prose.
const COMMENT_MARKS: [(&str, Option<&str>); 10] = [
    ("rs", Some("//")),
    ("mjs", Some("//")),
    ("js", Some("//")),
    ("ts", Some("//")),
    ("sql", Some("--")),
    ("toml", Some("#")),
    ("py", Some("#")),
    ("sh", Some("#")),
    ("html", None),
    ("md", None),
];

/// The text that a reader of a file sees as prose: all of a document or page, the comments of a source. A line of a
/// block comment (`/** … */`) counts as a comment.
fn prose<'t>(ending: &str, line: &'t str) -> Option<&'t str> {
    let (_, mark) = COMMENT_MARKS.into_iter().find(|(known, _)| *known == ending)?;
    let Some(mark) = mark else { return Some(line) };
    let in_block = mark == "//" && ["*", "/*"].iter().any(|start| line.trim_start().starts_with(start));
    if in_block { Some(line) } else { line.split_once(mark).map(|(_, comment)| comment) }
}

#[test]
fn no_comment_and_no_document_contains_a_ruled_out_phrase() {
    let mut paths = Vec::new();
    files(root(), &COMMENT_MARKS.map(|(ending, _)| ending), &mut paths);
    let mut found = Vec::new();
    for path in paths {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        if QUOTING.contains(&name.as_str()) || name == "tests/tests/language.rs" {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let ending = path.extension().unwrap().to_str().unwrap();
        for (n, line) in text.lines().enumerate() {
            let phrases = prose(ending, line).map(ruled_out).unwrap_or_default();
            found.extend(phrases.into_iter().map(|phrase| format!("{name}:{}: {phrase}", n + 1)));
        }
    }
    assert!(
        found.is_empty(),
        "{} ruled-out phrases (docs/GLOSSARY.md names better ones):\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn a_ruled_out_phrase_is_found_as_whole_words() {
    assert_eq!(ruled_out("the rows of before are written anew"), ["anew", "of before"]);
    assert!(ruled_out("a renewed key, of beforehand").is_empty());
}

#[test]
fn comments_of_each_kind_of_file_are_read() {
    for (ending, line) in [
        ("rs", "let rows = 1; // written anew"),
        ("ts", " * Written anew."),
        ("js", "/** Written anew. */"),
        ("sql", "    row INTEGER, -- written anew"),
        ("toml", "rows = 1 # written anew"),
        ("py", "rows = 1  # written anew"),
        ("html", "<p>Written anew.</p>"),
        ("md", "Written anew."),
    ] {
        assert_eq!(prose(ending, line).map(ruled_out), Some(vec!["anew"]), "{ending}");
    }
    assert_eq!(prose("rs", "let anew = 1;"), None);
}
