//! The program: flags in, an exit code out. Everything else is in the library beside it.

use std::process::ExitCode;

/// Calls allocate little and often, which this allocator does faster.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    toolward::run(std::env::args_os())
}
