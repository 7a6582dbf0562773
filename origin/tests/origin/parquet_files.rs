//! `causeway import` of Parquet files as pyarrow, pandas and DuckDB write them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::support::{Place, now, visitor};

const PACKAGES: [&str; 3] = ["duckdb==2.0.1", "pandas==3.1.1", "pyarrow==26.0.1"];

/// A Python with the packages, in a folder of its own. `None` where it is said that there is to be no Python.
fn python() -> Option<PathBuf> {
    if std::env::var_os("CAUSEWAY_NO_SPARK").is_some() {
        eprintln!("skipped: CAUSEWAY_NO_SPARK is set");
        return None;
    }
    let ran = |command: &mut Command| {
        let output = command.output();
        let done = output.as_ref().is_ok_and(|output| output.status.success());
        assert!(done, "{command:?}: {output:?}; with CAUSEWAY_NO_SPARK=1 Python is not asked");
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("pyarrow");
    let (python, stamp) = (folder.join("bin/python"), folder.join("stamp"));
    if std::fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == PACKAGES.join(" ")) {
        return Some(python);
    }
    ran(Command::new("python3").args(["-m", "venv"]).arg(&folder));
    ran(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES));
    std::fs::write(&stamp, PACKAGES.join(" ")).unwrap();
    Some(python)
}

#[test]
fn files_that_pyarrow_pandas_and_duckdb_write_are_read() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let visitors: Vec<String> = (0..20).map(|n| visitor(n).to_string()).collect();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parquet/write.py");
    let mut write = Command::new(&python);
    let output = write.arg(script).arg(folder.path()).arg(now().to_string()).args(&visitors).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut read = 0;
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let (path, place) = (file.unwrap().path(), Place::new());
        let kind = if path.to_str().unwrap().contains("/segments-") { "segments" } else { "events" };
        let done = place.json(&["import", kind, path.to_str().unwrap(), "--tenant", "demo"]);
        assert_eq!((&done["facts"], &done["bad_lines"]), (&json!(20), &json!(0)), "{}: {done}", path.display());
        let query = r#"{"count": {"from": 0, "to": 4000000000}}"#;
        if kind == "segments" {
            let get = |n: usize| place.json(&["segments", "get", &visitors[n], "--tenant", "demo", "--query", query]);
            assert_eq!([0, 1].map(|n| get(n)["count"].clone()), [json!(0), json!(1)], "{}", path.display());
        }
        read += 1;
    }
    assert!(read > 20, "{read}");
}
