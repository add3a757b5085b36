//! Fuzzes the TOML loader: any bytes are loaded or rejected, without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| toolward_fuzz::loading::load("policy.toml", data));
