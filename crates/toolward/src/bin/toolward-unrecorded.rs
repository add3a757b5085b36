//! The program without an audit log, to measure the cost of recording. Only `cargo xtask bench` builds it,
//! and it prints a warning at startup.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolward::run(std::env::args_os())
}
