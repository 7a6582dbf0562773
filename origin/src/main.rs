//! The command `causeway`: serves the origin and operates it.

mod cli;

use std::process::ExitCode;

use rustix::fs::Mode;

fn main() -> ExitCode {
    // Every file that the process creates holds personal data or keys: stores, backups, exports, indexes.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    cli::main()
}
