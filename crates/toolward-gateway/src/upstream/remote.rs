//! A server over HTTP: its address, and the headers and credentials it gets.

use std::io;
use std::sync::Arc;

use super::oauth::OAuth;
use crate::client::Claims;
use crate::http_client::{Address, Client, ClientTls};

/// A server over HTTP.
#[derive(Debug, Clone, PartialEq)]
pub struct Remote {
    pub address: Address,
    /// Configured headers, including credentials.
    pub headers: Vec<(String, String)>,
    /// Headers by agent, which replace those of the same name.
    pub headers_for: Vec<(String, Vec<(String, String)>)>,
    /// The source of `Authorization`, unless a header has it.
    pub oauth: Option<Arc<OAuth>>,
    /// A private CA or a client certificate; otherwise the system's certificates.
    pub tls: Option<ClientTls>,
    /// `None`: detected.
    pub transport: Option<Wire>,
}

impl Remote {
    pub(super) fn client(&self) -> Client {
        Client::new(self.address.clone(), self.tls.clone())
    }

    /// Whether agents have their own credentials, so that connections cannot be shared by everyone.
    pub(crate) fn is_personal(&self) -> bool {
        !self.headers_for.is_empty() || self.oauth.as_ref().is_some_and(|oauth| oauth.is_personal())
    }

    /// Whether each holder of a JWT has credentials of its own.
    pub(crate) fn exchanges(&self) -> bool {
        self.oauth.as_ref().is_some_and(|oauth| oauth.exchanges())
    }

    /// The server with the headers of one agent, or of the holder of a JWT.
    pub(super) fn of(&self, agent: Option<&str>, holder: Option<&Arc<Claims>>) -> Remote {
        let mut remote = Remote { headers_for: Vec::new(), ..self.clone() };
        let own = self.headers_for.iter().find(|(name, _)| Some(name.as_str()) == agent);
        for (name, value) in own.into_iter().flat_map(|(_, headers)| headers) {
            remote.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
            remote.headers.push((name.clone(), value.clone()));
        }
        if remote.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
            remote.oauth = None;
        }
        remote.oauth = remote.oauth.map(|oauth| oauth.of(agent, holder));
        remote
    }

    /// The value of `Authorization`, if it comes from a token. Fetches a token if necessary.
    ///
    /// A server that no one has logged in to is asked without a token: it may not need one.
    pub(super) async fn token(&self) -> io::Result<Option<Arc<str>>> {
        match &self.oauth {
            Some(oauth) => match oauth.fresh() {
                Some(header) => Ok(Some(header)),
                // Boxed because it is rare: the future of every call would have to hold it otherwise.
                None if oauth.may_do_without() => Ok(None),
                None => Ok(Some(Box::pin(oauth.authorization()).await?)),
            },
            None => Ok(None),
        }
    }

    /// The login that the token of requests belongs to.
    pub(super) fn login_id(&self) -> Option<Arc<str>> {
        self.oauth.as_ref()?.login_id()
    }

    /// After a 401: replaces a token that the server rejected, once; true if there is a new one. If no token was sent
    /// because no one has logged in, a login is needed, which is the error.
    pub(super) async fn renewed(&self, token: &mut Option<Arc<str>>) -> io::Result<bool> {
        let Some(oauth) = &self.oauth else { return Ok(false) };
        let Some(old) = token.take() else { return oauth.challenged().map(|()| false) };
        oauth.refused(&old);
        Ok(Box::pin(oauth.authorization()).await? != old)
    }

    /// The server accepted a request without a token.
    pub(super) fn accepted_without_token(&self) {
        if let Some(oauth) = &self.oauth {
            oauth.accepted_without_token();
        }
    }
}

/// The transport of a server over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    Streamable,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}
