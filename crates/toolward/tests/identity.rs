//! Authentication from outside: every kind of credential through the real program, with an issuer and
//! certificates that the tests create, and with real clients if `./test` has installed them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[allow(dead_code)]
#[path = "program/audit_log.rs"]
mod audit_log;
#[path = "identity/certificates.rs"]
mod certificates;
#[path = "identity/claims.rs"]
mod claims;
#[path = "identity/discovery.rs"]
mod discovery;
#[path = "identity/endpoint.rs"]
mod endpoint;
#[path = "identity/exchange.rs"]
mod exchange;
#[allow(dead_code)]
#[path = "serve/harness.rs"]
mod harness;
#[path = "identity/issuer.rs"]
mod issuer;
#[path = "identity/issuers.rs"]
mod issuers;
#[path = "identity/jwt.rs"]
mod jwt;
#[path = "identity/keys.rs"]
mod keys;
#[allow(dead_code)]
#[path = "real/peers.rs"]
mod peers;
#[path = "identity/real_clients.rs"]
mod real_clients;
#[path = "identity/revoked.rs"]
mod revoked;
#[path = "identity/scopes.rs"]
mod scopes;
#[path = "program/tls.rs"]
mod tls;
#[path = "identity/unix.rs"]
mod unix;
#[path = "identity/upstream_credentials.rs"]
mod upstream_credentials;
#[allow(dead_code)]
#[path = "serve/wire.rs"]
mod wire;
