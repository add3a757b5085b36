//! The configuration of a login.

use std::path::PathBuf;

use super::secret::Secret;
use crate::http_client::{Address, ClientTls};

/// The address to which authorization servers redirect, unless another one is configured. It is fixed, because some
/// providers accept no random ports.
pub const DEFAULT_REDIRECT: &str = "http://127.0.0.1:7411/oauth/callback";
/// The grant type of the device flow (RFC 8628).
pub(crate) const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// `login` of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct LoginSettings {
    pub server: String,
    /// The server's URL, without its query.
    pub url: String,
    pub address: Address,
    pub tls: Option<ClientTls>,
    /// A registered client, and its secret.
    pub client: Option<(String, Option<Secret>)>,
    pub scope: Option<String>,
    pub flow: Flow,
    pub of: Of,
    pub resource: Resource,
    pub redirect: String,
    /// The address of a client id metadata document.
    pub client_metadata_url: Option<String>,
    pub issuer: Option<String>,
    /// The state directory, where grants are kept.
    pub state: PathBuf,
}

impl LoginSettings {
    /// The server's URL as it is used, with its query.
    pub(crate) fn address_with_target(&self) -> String {
        let scheme = if self.address.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.address.authority, self.address.target)
    }
}

/// How a person logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The browser on this machine, which is redirected to the gateway.
    Browser,
    /// Any browser, with a code (RFC 8628).
    Device,
    /// Any browser; the address that it is redirected to is pasted.
    Paste,
}

/// Whose login is used for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// One login for all agents.
    Gateway,
    /// One login for each agent.
    Agent,
}

/// The parameter `resource` (RFC 8707).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// As the server's metadata has it.
    Discovered,
    Omitted,
    Configured(String),
}
