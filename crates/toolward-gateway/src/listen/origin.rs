//! By which names the gateway may be reached, and from which web pages.

use std::net::IpAddr;

/// Names and origins that are let in. A browser that was tricked into asking says a foreign one.
#[derive(Debug, Default)]
pub struct Reachable {
    /// Hosts, with or without a port, in lower case.
    hosts: Vec<String>,
    /// Origins such as `https://app.example`, in lower case.
    origins: Vec<String>,
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
        }
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
