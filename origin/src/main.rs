//! `causeway`: serve, and look after what is served.

mod cli;

use std::process::ExitCode;

use rustix::fs::Mode;

fn main() -> ExitCode {
    // Every file that it makes holds personal data or keys: stores, backups, exports, indexes.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    cli::main()
}
