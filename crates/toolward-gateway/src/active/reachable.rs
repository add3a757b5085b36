//! Hosts, web origins and proxies of the HTTP endpoint, and its public URL.

use std::net::IpAddr;

/// Allowed hosts and origins. In a DNS rebinding or cross-site request, the browser sends a different
/// one.
#[derive(Default)]
pub struct Reachable {
    /// Hosts, with or without a port, in lower case.
    hosts: Vec<String>,
    /// Origins such as `https://app.example`, in lower case.
    origins: Vec<String>,
    /// Origins whose pages may read responses (CORS).
    pages: Vec<String>,
    /// The trusted proxies.
    proxies: Option<Box<dyn Fn(IpAddr) -> bool + Send + Sync>>,
    /// The public URL, if it is configured.
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

    /// Lets pages of these origins read responses, through CORS headers.
    pub fn pages(mut self, origins: impl IntoIterator<Item = String>) -> Reachable {
        self.pages = origins.into_iter().map(|origin| origin.to_ascii_lowercase()).collect();
        self
    }

    /// Sets which addresses are trusted proxies.
    pub fn proxies(
        mut self,
        proxies: impl Fn(IpAddr) -> bool + Send + Sync + 'static,
    ) -> Reachable {
        self.proxies = Some(Box::new(proxies));
        self
    }

    /// Sets the public URL.
    pub fn base(mut self, base: Base) -> Reachable {
        self.base = Some(base);
        self
    }

    pub(crate) fn public_base(&self) -> Option<&Base> {
        self.base.as_ref()
    }

    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        self.proxies.as_ref().is_some_and(|trusted| trusted(address))
    }

    /// Whether a `Host` header refers to this gateway.
    pub fn host(&self, authority: &str) -> bool {
        let name = without_port(authority);
        is_loopback(name) || self.hosts.iter().any(|host| host == authority || host == name)
    }

    /// Whether a web page of this origin may send requests.
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

    /// Whether pages of this origin may read responses.
    pub(crate) fn may_read(&self, origin: &str) -> bool {
        self.pages.contains(&origin.to_ascii_lowercase())
    }
}

/// The public URL of the gateway without the endpoint's path: `https://gate.example`, plus any path
/// prefix that a proxy adds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Base {
    /// Scheme and host.
    origin: String,
    /// Empty, or begins with a slash.
    prefix: String,
}

impl Base {
    /// From `public_url`, with or without the endpoint's path at its end.
    pub fn of_url(url: &str) -> Base {
        let url = url.trim_end_matches('/');
        let url = url.strip_suffix("/mcp").unwrap_or(url);
        let host = url.find("://").map_or(0, |at| at + 3);
        let slash = url.get(host..).and_then(|rest| rest.find('/')).map(|at| host + at);
        let (origin, prefix) = url.split_at(slash.unwrap_or(url.len()));
        Base { origin: origin.to_ascii_lowercase(), prefix: prefix.into() }
    }

    pub(crate) fn of_host(secure: bool, host: &str) -> Base {
        let scheme = if secure { "https" } else { "http" };
        Base { origin: format!("{scheme}://{host}"), prefix: String::new() }
    }

    pub(crate) fn resource(&self, path: &str) -> String {
        format!("{}{}{path}", self.origin, self.prefix)
    }

    /// The URL of a well-known document for a path.
    pub(crate) fn well_known(&self, document: &str, path: &str) -> String {
        format!("{}{document}{}{path}", self.origin, self.prefix)
    }

    /// The path prefix that a proxy adds before the endpoint's path, or empty.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl std::fmt::Display for Base {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.origin, self.prefix)
    }
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
