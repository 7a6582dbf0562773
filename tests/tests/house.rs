//! The house rules that a compiler does not check: bounds of files and functions, and documents that name what is there.
#![expect(clippy::unwrap_used, reason = "tests end at the first thing that is not so")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines of a source file, tests apart.
const FILE_LINES: usize = 500;
/// Lines of a function.
const FUNCTION_LINES: usize = 70;
/// Lines of the README.
const README_LINES: usize = 120;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Files that git tracks, by their ending.
fn tracked(ending: &str) -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    let files = String::from_utf8(listed.stdout).unwrap();
    let found: Vec<PathBuf> = files.lines().filter(|f| f.ends_with(ending)).map(|f| root().join(f)).collect();
    assert!(!found.is_empty(), "git lists no {ending} file");
    found
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str().to_string_lossy().contains("test"))
}

#[test]
fn no_source_file_is_over_its_bound() {
    for ending in [".rs", ".mjs"] {
        for path in tracked(ending).iter().filter(|p| !is_test(p)) {
            let text = std::fs::read_to_string(path).unwrap();
            let lines = text.split("#[cfg(test)]").next().unwrap_or_default().lines().count();
            assert!(lines <= FILE_LINES, "{} has {lines} lines: split it where the data's way turns", path.display());
        }
    }
}

#[test]
fn no_function_is_over_its_bound() {
    for path in tracked(".rs") {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut start: Option<(usize, String)> = None;
        for (number, line) in text.lines().enumerate() {
            let indent = &line[..line.len() - line.trim_start().len()];
            let code = line.trim_start();
            let begins =
                ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "async fn ", "pub async fn ", "pub const fn "]
                    .iter()
                    .any(|f| code.starts_with(f));
            if begins && !code.ends_with(';') && !code.ends_with('}') {
                start = Some((number, indent.to_owned()));
            }
            if let Some((first, of)) = &start
                && code == "}"
                && indent == of
            {
                let lines = number - first + 1;
                assert!(lines <= FUNCTION_LINES, "{}:{}: {lines} lines in one function", path.display(), first + 1);
                start = None;
            }
        }
    }
}

#[test]
fn the_deployment_guide_says_what_to_do_about_every_line_of_the_worker_s_log() {
    let guide = std::fs::read_to_string(root().join("docs/DEPLOY.md")).unwrap();
    let mut events = 0;
    for path in tracked(".mjs").iter().filter(|path| path.parent().is_some_and(|folder| folder.ends_with("edge/shell")))
    {
        let text = std::fs::read_to_string(path).unwrap();
        for event in text.split("log(\"").skip(1).filter_map(|after| after.split('"').next()) {
            assert!(guide.contains(&format!("\n| `{event}` |")), "{}: {event}", path.display());
            events += 1;
        }
    }
    assert!(events >= 12, "{events}");
}

#[test]
fn the_readme_is_short_and_the_documents_name_what_is_there() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.lines().count() <= README_LINES);
    for document in ["README.md", "ARCHITECTURE.md", "docs/DEPLOY.md"] {
        let text = std::fs::read_to_string(root().join(document)).unwrap();
        // Every odd piece between backticks is code; those with a folder of ours in front are paths.
        for code in text.split('`').skip(1).step_by(2) {
            let ours = ["shared/", "edge/", "origin/", "tests/", "xtask/", "docs/"]
                .iter()
                .any(|folder| code.starts_with(folder));
            if ours && !code.contains([' ', '*', '<', '\n']) {
                assert!(root().join(code).exists(), "{document} names {code}, which is not there");
            }
        }
    }
}
