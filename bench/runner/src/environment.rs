//! The variables of `cargo xtask bench`: paths of the built programs.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::workerd::Module;

/// The path in an environment variable.
pub(crate) fn path(name: &str) -> Result<PathBuf> {
    let value = std::env::var_os(name);
    value.map(PathBuf::from).with_context(|| format!("{name} is not set: run `cargo xtask bench` instead"))
}

/// The modules of the edge worker as `wrangler deploy` bundles it: `platform.js` and its imports.
pub(crate) fn bundle(folder: &Path) -> Result<Vec<Module>> {
    let entry = folder.join("platform.js");
    let mut modules = vec![Module { name: "platform.js".to_owned(), file: entry }];
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let file = entry?.path();
        let imported = file.extension().is_some_and(|extension| extension == "wasm" || extension == "html");
        if let Some(name) = file.file_name().and_then(|name| name.to_str()).filter(|_| imported) {
            modules.push(Module { name: format!("./{name}"), file: file.clone() });
        }
    }
    Ok(modules)
}
