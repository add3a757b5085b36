//! An echo server and a load generator, for benchmarks and tests.
//!
//! [`echo`] is an MCP server that returns the arguments of a call. [`load`] is a client that sends
//! the next request as soon as it has the response to the last one. The program `testkit` runs
//! either. [`memory`] is a scripted server inside a test. [`authorization_server`] is an OAuth
//! authorization server with switches for every fault that clients have to survive, and an MCP
//! server that it protects.
//!
//! Neither may be the bottleneck, so both run on one thread and parse only as much HTTP and JSON as
//! they need. They share no code with the gateway: a bug in its parser would otherwise go
//! unnoticed.
//!
//! ```
//! use toolward_testkit::echo::{self, Server};
//! use toolward_testkit::load::{self, Kind, Target};
//!
//! let server = echo::http::start(Server::new(&echo::tools(3, 0))?)?;
//! let target = Target::parse(&server.url())?;
//! let answer = load::once(&target, Kind::List)?;
//! assert!(String::from_utf8_lossy(&answer).contains("\"echo\""));
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod authorization_server;
pub mod echo;
pub mod histogram;
pub mod http;
pub mod json;
pub mod load;
pub mod memory;
pub mod postgres;
pub mod proxy;
pub mod wait;
