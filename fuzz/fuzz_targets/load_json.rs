//! Any bytes as a JSON file: loaded or refused, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| toolward_fuzz::loading::load("policy.json", data));
