//! By which names the gateway may be reached, from which web pages, and through which proxies.

use std::net::IpAddr;

use toolward_wire::http::{Method, RequestHead};

use super::connection::Response;
use super::oauth_metadata::Base;

/// What a page may send beside what browsers always allow; `Mcp-Param-*` is added as it is asked for.
const SENT: &str = "Accept, Authorization, Content-Type, Last-Event-ID, MCP-Protocol-Version, \
    Mcp-Method, Mcp-Name, Mcp-Session-Id";
/// What a page may read of an answer.
const READ: &str = "Mcp-Session-Id, WWW-Authenticate, Retry-After";
/// How long a browser may remember, in seconds.
const REMEMBERED: &str = "600";

/// Names and origins that are let in. A browser that was tricked into asking says a foreign one.
#[derive(Default)]
pub struct Reachable {
    /// Hosts, with or without a port, in lower case.
    hosts: Vec<String>,
    /// Origins such as `https://app.example`, in lower case.
    origins: Vec<String>,
    /// Origins whose pages may read answers.
    pages: Vec<String>,
    /// The proxies that are believed.
    proxies: Option<Box<dyn Fn(IpAddr) -> bool + Send + Sync>>,
    /// How clients write the address, where the configuration says it.
    base: Option<Base>,
}

impl Reachable {
    pub fn new(
        hosts: impl IntoIterator<Item = String>,
        origins: impl IntoIterator<Item = String>,
    ) -> Reachable {
        let lower = |text: String| text.trim_end_matches('/').to_ascii_lowercase();
        Reachable {
            hosts: hosts.into_iter().map(lower).collect(),
            origins: origins.into_iter().map(lower).collect(),
            ..Reachable::default()
        }
    }

    /// Pages of these origins may read answers, because browsers are told so.
    pub fn pages(mut self, origins: impl IntoIterator<Item = String>) -> Reachable {
        self.pages = origins.into_iter().map(|origin| origin.to_ascii_lowercase()).collect();
        self
    }

    /// These addresses are proxies of the operator.
    pub fn proxies(
        mut self,
        proxies: impl Fn(IpAddr) -> bool + Send + Sync + 'static,
    ) -> Reachable {
        self.proxies = Some(Box::new(proxies));
        self
    }

    /// This is how clients write the address.
    pub fn base(mut self, base: Base) -> Reachable {
        self.base = Some(base);
        self
    }

    pub(super) fn written(&self) -> Option<&Base> {
        self.base.as_ref()
    }

    pub(super) fn trusts(&self, address: IpAddr) -> bool {
        self.proxies.as_ref().is_some_and(|trusted| trusted(address))
    }

    /// Whether a `Host` header names this gateway.
    pub fn host(&self, authority: &str) -> bool {
        let name = without_port(authority);
        is_loopback(name) || self.hosts.iter().any(|host| host == authority || host == name)
    }

    /// Whether a web page from there may ask.
    pub fn origin(&self, origin: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        if self.origins.contains(&origin) {
            return true;
        }
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        authority.is_some_and(|authority| {
            !authority.contains(['/', '@', '?', '#']) && is_loopback(without_port(authority))
        })
    }

    /// The page that asks, where it may read the answer.
    pub(super) fn page(&self, head: &RequestHead) -> Option<String> {
        if self.pages.is_empty() {
            return None;
        }
        let origin = head.headers.get("origin")?;
        self.pages.contains(&origin.to_ascii_lowercase()).then(|| origin.into())
    }

    /// The answer to a browser that asks whether a page may ask.
    pub(super) fn preflight(&self, head: &RequestHead) -> Option<Response> {
        self.page(head)?;
        if head.method != Method::Options
            || head.headers.count("access-control-request-method") == 0
        {
            return None;
        }
        let asked = head.headers.get("access-control-request-headers").unwrap_or_default();
        let marks = asked.split(',').map(str::trim).filter(|name| {
            let name = name.to_ascii_lowercase();
            let rest = name.strip_prefix("mcp-param-");
            rest.is_some_and(|rest| rest.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-'))
        });
        let sent = marks.fold(SENT.to_string(), |sent, mark| sent + ", " + mark);
        Some(
            Response::empty(204)
                .field("Access-Control-Allow-Methods", "GET, POST, DELETE")
                .field("Access-Control-Allow-Headers", sent)
                .field("Access-Control-Max-Age", REMEMBERED),
        )
    }
}

/// Lets a page read an answer. Credentials that browsers add by themselves are never let in.
pub(super) fn readable(response: Response, page: String) -> Response {
    response
        .field("Access-Control-Allow-Origin", page)
        .field("Access-Control-Expose-Headers", READ)
        .field("Vary", "Origin")
}

fn without_port(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(host, _)| host),
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    }
}

fn is_loopback(name: &str) -> bool {
    name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_names_and_configured_ones_are_let_in() {
        let reachable = Reachable::new(
            ["Gate.example".into(), "other.example:8443".into()],
            ["https://App.example".into()],
        );
        for host in [
            "localhost",
            "localhost:7410",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:7410",
            "gate.example",
            "gate.example:1",
            "other.example:8443",
        ] {
            assert!(reachable.host(host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "other.example",
            "10.0.0.1",
            "127.0.0.1.evil.example",
            "",
        ] {
            assert!(!reachable.host(host), "{host}");
        }
        for origin in [
            "https://app.example",
            "http://localhost:3000",
            "http://[::1]:5173",
            "http://127.0.0.1",
        ] {
            assert!(reachable.origin(origin), "{origin}");
        }
        for origin in [
            "null",
            "https://evil.example",
            "http://localhost.evil.example",
            "http://localhost@evil.example",
            "https://app.example.evil",
            "file://",
            "",
        ] {
            assert!(!reachable.origin(origin), "{origin}");
        }
    }
}
