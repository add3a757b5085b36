//! URLs of origins.

use std::net::IpAddr;

/// The parts of a URL that a connection needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub tls: bool,
    /// The name or address to connect to, without brackets.
    pub host: String,
    pub port: u16,
    /// Host and port as the `Host` header has them.
    pub authority: String,
    /// Path and query.
    pub target: String,
}

impl Address {
    /// Parses `http://HOST[:PORT]/PATH` and `https://…`. Credentials in the URL are rejected: they
    /// belong in `headers`.
    pub fn parse(url: &str) -> Result<Address, String> {
        let (scheme, rest) = url.split_once("://").ok_or("it has no `http://` or `https://`")?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            other => {
                return Err(format!("the scheme `{other}` is not supported, only http and https"));
            }
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            return Err("it contains a user name; put credentials into `headers`".into());
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let (host, port) = bracketed.split_once(']').ok_or("a bracket is not closed")?;
                (host, port.strip_prefix(':'))
            }
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = match port {
            None | Some("") => {
                if tls {
                    443
                } else {
                    80
                }
            }
            Some(port) => port.parse().map_err(|_| format!("`{port}` is not a port"))?,
        };
        if host.is_empty() {
            return Err("it has no host".into());
        }
        let target = match target {
            "" => "/".into(),
            query if query.starts_with('?') => format!("/{query}"),
            target => target.into(),
        };
        Ok(Address { tls, host: host.into(), port, authority: authority.into(), target })
    }

    /// Whether the address is on this machine.
    pub fn is_loopback(&self) -> bool {
        let ip = self.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        ip || self.host.eq_ignore_ascii_case("localhost")
    }

    /// An address that the server gave for itself: only its path and query may differ.
    pub(crate) fn same_host(&self, reference: &str) -> Option<Address> {
        let target = match reference.contains("://") {
            true => {
                let other = Address::parse(reference).ok()?;
                let same =
                    (other.tls, &other.host, other.port) == (self.tls, &self.host, self.port);
                same.then_some(other.target)?
            }
            false if reference.starts_with('/') => reference.into(),
            false => return None,
        };
        Some(Address { target, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_parts() {
        let full = Address::parse("https://a.example:8443/mcp?x=1#y").unwrap();
        assert_eq!((full.tls, &*full.host, full.port), (true, "a.example", 8443));
        assert_eq!((&*full.authority, &*full.target), ("a.example:8443", "/mcp?x=1"));
        let six = Address::parse("http://[::1]:9").unwrap();
        assert_eq!((&*six.host, six.port, &*six.target), ("::1", 9, "/"));
        assert_eq!(Address::parse("https://a").unwrap().port, 443);
    }

    #[test]
    fn an_invalid_address_is_rejected() {
        for bad in
            ["a.example/mcp", "ftp://a/", "http://", "http://u:p@a/", "http://a:x/", "http://[::1"]
        {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_server_may_not_send_us_elsewhere() {
        let here = Address::parse("http://a.example/sse").unwrap();
        assert_eq!(here.same_host("/messages?id=1").unwrap().target, "/messages?id=1");
        assert_eq!(here.same_host("http://a.example/m").unwrap().target, "/m");
        for elsewhere in ["http://b.example/m", "https://a.example/m", "http://a.example:81/m", "x"]
        {
            assert_eq!(here.same_host(elsewhere), None, "{elsewhere}");
        }
    }
}
