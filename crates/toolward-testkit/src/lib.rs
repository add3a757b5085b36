//! Both ends of a measurement: [`echo`] is an MCP server that answers with what it was given,
//! [`load`] a client that asks as fast as it is answered. The program `testkit` runs either.
//!
//! Neither may be what is measured: they read HTTP and JSON only as far as they must, on one thread
//! each, and share no code with the gateway, so that no mistake of it goes unnoticed here.
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

pub mod echo;
pub mod histogram;
pub mod http;
pub mod json;
pub mod load;
