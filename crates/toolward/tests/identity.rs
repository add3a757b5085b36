//! Who calls, seen from outside: every kind of credential through the real program, with an issuer and
//! certificates that the tests make, and with real clients where `./test` has installed them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[path = "identity/certificates.rs"]
mod certificates;
#[path = "identity/claims.rs"]
mod claims;
#[path = "identity/discovery.rs"]
mod discovery;
#[path = "identity/gone.rs"]
mod gone;
#[allow(dead_code)]
#[path = "serve/harness.rs"]
mod harness;
#[path = "identity/issuer.rs"]
mod issuer;
#[path = "identity/jwt.rs"]
mod jwt;
#[path = "identity/keys.rs"]
mod keys;
#[allow(dead_code)]
#[path = "real/peers.rs"]
mod peers;
#[path = "identity/reach.rs"]
mod reach;
#[path = "identity/real.rs"]
mod real;
#[allow(dead_code)]
#[path = "program/record.rs"]
mod record;
#[path = "identity/towards.rs"]
mod towards;
#[path = "identity/unix.rs"]
mod unix;
#[allow(dead_code)]
#[path = "serve/wire.rs"]
mod wire;
