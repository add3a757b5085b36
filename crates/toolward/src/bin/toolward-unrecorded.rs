//! The program without its record, to measure what the record costs. It is built by `cargo xtask bench`
//! alone, and says at its start what it is.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolward::run(std::env::args_os())
}
