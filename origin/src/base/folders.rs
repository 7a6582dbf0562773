//! Directories that only their owner can read.

use std::path::Path;

use std::os::unix::fs::DirBuilderExt as _;

/// Creates a directory and its parents with mode 0700, because they hold personal data.
///
/// # Errors
/// The operating system's error. An existing directory is no error.
pub fn make_folder(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
