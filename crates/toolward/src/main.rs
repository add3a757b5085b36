//! The program: flags in, an exit code out. Everything else is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolward::run(std::env::args_os())
}
