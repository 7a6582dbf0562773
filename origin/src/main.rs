//! `causeway`: serve, and look after what is served.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
