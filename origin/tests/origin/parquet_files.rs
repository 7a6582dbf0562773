//! `causeway import` of Parquet files as pyarrow, pandas and DuckDB write them.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::support::{Place, now, python_with, visitor};

const PACKAGES: [&str; 3] = ["duckdb==2.0.1", "pandas==3.1.1", "pyarrow==26.0.1"];

#[test]
fn files_that_pyarrow_pandas_and_duckdb_write_are_read() {
    let Some(python) = python_with("pyarrow", &PACKAGES, &[]) else { return };
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
