//! Folders that only their owner reads.

use std::path::Path;

use std::os::unix::fs::DirBuilderExt as _;

/// Makes a folder, and those above it, that nobody but its owner reads: personal data lies in it.
///
/// # Errors
/// As the operating system says; none where it is there.
pub fn make_folder(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
