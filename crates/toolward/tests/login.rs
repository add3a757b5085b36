//! Logins from outside: the real program, a fake authorization server with the faults of real ones, and a server that
//! it protects.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[path = "login/attacks.rs"]
mod attacks;
#[path = "login/browser.rs"]
mod browser;
#[path = "login/clients.rs"]
mod clients;
#[path = "login/fleet.rs"]
mod fleet;
#[path = "login/open.rs"]
mod open;
#[path = "login/refresh.rs"]
mod refresh;
#[path = "login/states.rs"]
mod states;
#[path = "login/traps.rs"]
mod traps;
#[path = "login/world.rs"]
mod world;
