//! Entry point. Everything else is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolward::run(std::env::args_os())
}
