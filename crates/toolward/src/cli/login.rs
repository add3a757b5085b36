//! The flags of `login`, `logins` and `logout`.

use clap::Args;

use super::{OutputArgs, PolicyArgs};

/// Log in to a server that needs it (OAuth)
///
/// Opens a browser, waits until you have logged in, and stores the login, encrypted, in the state directory. Running
/// gateways use it from then on, and refresh it. The server needs `login` in the configuration.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward login linear
  toolward login linear --as claude-code   # with `login: { of: agent }`
  toolward login linear --paste            # over SSH or in a container")]
pub struct LoginArgs {
    /// A server of the configuration
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// The agent whose login it is, if the server has `login: { of: agent }`
    #[arg(long = "as", value_name = "AGENT")]
    pub agent: Option<String>,
    /// Print the address, and read the one that the browser ends at: the browser may be on another machine
    #[arg(long)]
    pub paste: bool,
    /// Print the address instead of opening a browser
    #[arg(long)]
    pub no_browser: bool,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Show the logins of servers, and which are missing
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward logins
  toolward logins --json")]
pub struct LoginsArgs {
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Remove the login of a server
///
/// Running gateways stop using it within seconds. It is revoked at the provider, too, if that supports it (RFC 7009).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  toolward logout linear
  toolward logout linear --as claude-code")]
pub struct LogoutArgs {
    /// A server of the configuration, or one that has been removed from it
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// The agent whose login it is
    #[arg(long = "as", value_name = "AGENT")]
    pub agent: Option<String>,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
