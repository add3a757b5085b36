//! A server on HTTP: its address, and what is sent along to it.

use std::io;
use std::sync::Arc;

use super::oauth::OAuth;
use crate::http_client::{Address, Client, ClientTls};

/// A server on HTTP.
#[derive(Debug, Clone, PartialEq)]
pub struct Remote {
    pub address: Address,
    /// Headers of the configuration, credentials among them.
    pub headers: Vec<(String, String)>,
    /// By agent, instead of those of the same name.
    pub headers_for: Vec<(String, Vec<(String, String)>)>,
    /// Where `Authorization` comes from, where no header gives it.
    pub oauth: Option<Arc<OAuth>>,
    /// A private CA or a client certificate; otherwise the system's certificates.
    pub tls: Option<ClientTls>,
    /// Said by the configuration; else found out.
    pub transport: Option<Wire>,
}

impl Remote {
    /// A client for the server.
    pub(super) fn client(&self) -> Client {
        Client::new(self.address.clone(), self.tls.clone())
    }

    /// Whether some agents come with credentials of their own, so that no link is everyone's.
    pub fn is_personal(&self) -> bool {
        !self.headers_for.is_empty()
    }

    /// The server as it is asked for one agent.
    pub(super) fn of(&self, agent: Option<&str>) -> Remote {
        let mut remote = Remote { headers_for: Vec::new(), ..self.clone() };
        let own = self.headers_for.iter().find(|(name, _)| Some(name.as_str()) == agent);
        for (name, value) in own.into_iter().flat_map(|(_, headers)| headers) {
            remote.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
            remote.headers.push((name.clone(), value.clone()));
        }
        if remote.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
            remote.oauth = None;
        }
        remote
    }

    /// The value of `Authorization`, where it is not a header of the configuration. Waits for a
    /// token if need be.
    pub(super) async fn token(&self) -> io::Result<Option<Arc<str>>> {
        match &self.oauth {
            Some(oauth) => Ok(Some(Box::pin(oauth.authorization()).await?)),
            None => Ok(None),
        }
    }

    /// Gets another token once, where the server does not take this one; true where there is one.
    pub(super) async fn renewed(&self, token: &mut Option<Arc<str>>) -> io::Result<bool> {
        let (Some(oauth), Some(old)) = (&self.oauth, token.take()) else { return Ok(false) };
        oauth.refused(&old);
        Ok(Box::pin(oauth.authorization()).await? != old)
    }
}

/// How a server on HTTP is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    Streamable,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}
