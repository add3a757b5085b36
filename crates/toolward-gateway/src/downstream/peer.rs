//! The peer of a connection: its address, user id and client certificate.

use std::net::IpAddr;

use toolward_wire::http::RequestHead;

use super::tls::Chain;
use crate::active::reachable::Reachable;
use crate::authn::Certificate;

/// The peer of a connection.
#[derive(Debug, Default)]
pub struct Peer {
    /// The address, over TCP.
    pub address: Option<IpAddr>,
    /// The user id of the peer process, on a unix socket.
    pub uid: Option<u32>,
    /// The client certificate, verified against the configured authorities.
    pub certificate: Option<Certificate>,
    /// The certificate chain as it was sent, to be verified again.
    pub chain: Option<Chain>,
    /// The connection is TLS.
    pub secure: bool,
}

impl Peer {
    /// The same peer, for a call that outlives its connection.
    pub(super) fn copied(&self) -> Peer {
        Peer {
            address: self.address,
            uid: self.uid,
            certificate: self.certificate.clone(),
            chain: self.chain.as_ref().map(Chain::copied),
            secure: self.secure,
        }
    }

    /// The source of the connection itself.
    pub(super) fn origin(&self) -> String {
        match (self.address, self.uid) {
            (Some(address), _) => written(address.to_canonical()),
            (None, Some(uid)) => format!("uid {uid}"),
            (None, None) => "unix".into(),
        }
    }

    /// The source of a request, for the audit log. `X-Forwarded-For` is honored only from
    /// `trusted_proxies`, and never affects identity.
    pub(super) fn source(&self, reachable: &Reachable, head: Option<&RequestHead>) -> String {
        let Some(address) = self.address else {
            return self.uid.map_or_else(|| "unix".into(), |uid| format!("uid {uid}"));
        };
        let mut source = address.to_canonical();
        let said = head.filter(|_| reachable.trusts(source));
        for value in said.into_iter().flat_map(|head| values(head, "x-forwarded-for")).rev() {
            // Each proxy appends the address it saw: the last one that is not a trusted proxy cannot be
            // spoofed.
            for hop in value.rsplit(',').map(str::trim) {
                let Some(hop) = address_of(hop) else { return written(source) };
                source = hop;
                if !reachable.trusts(source) {
                    return written(source);
                }
            }
        }
        written(source)
    }

    /// Whether the client used TLS, to the gateway or to a trusted proxy.
    pub(super) fn is_secure(&self, reachable: &Reachable, head: &RequestHead) -> bool {
        let trusted = self.address.is_some_and(|address| reachable.trusts(address.to_canonical()));
        match values(head, "x-forwarded-proto").last() {
            Some(said) if trusted => said.eq_ignore_ascii_case("https"),
            _ => self.secure,
        }
    }

    /// The host that the client requested, from `X-Forwarded-Host` if a trusted proxy sent it.
    pub(super) fn host<'h>(&self, reachable: &Reachable, head: &'h RequestHead) -> &'h str {
        let trusted = self.address.is_some_and(|address| reachable.trusts(address.to_canonical()));
        match values(head, "x-forwarded-host").last() {
            Some(said) if trusted && reachable.host(&said.to_ascii_lowercase()) => said,
            _ => &head.host,
        }
    }
}

fn values<'h>(head: &'h RequestHead, name: &'static str) -> Vec<&'h str> {
    let named = head.headers.iter().filter(|(sent, _)| sent.eq_ignore_ascii_case(name));
    named.filter_map(|(_, value)| std::str::from_utf8(value).ok()).collect()
}

/// Parses an address with or without a port.
fn address_of(hop: &str) -> Option<IpAddr> {
    let address = hop.parse::<IpAddr>().ok();
    let address = address.or_else(|| hop.parse::<std::net::SocketAddr>().ok().map(|at| at.ip()));
    address.map(|address| address.to_canonical())
}

fn written(address: IpAddr) -> String {
    crate::audit::source(address)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use toolward_wire::http::{HeadLimits, read_request};

    use super::*;

    fn head(fields: &str) -> RequestHead {
        let mut bytes = BytesMut::from(
            format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").as_str(),
        );
        read_request(&mut bytes, &HeadLimits::default()).unwrap().unwrap()
    }

    fn reachable() -> Reachable {
        let proxy = |address: IpAddr| address.to_string().starts_with("10.");
        Reachable::new(["gate.example".into()], []).proxies(proxy)
    }

    #[test]
    fn only_a_trusted_proxy_can_forward_an_address() {
        let reachable = reachable();
        let from = |address: &str, fields: &str| {
            let peer = Peer { address: address.parse().ok(), ..Peer::default() };
            peer.source(&reachable, Some(&head(fields)))
        };
        let said = "X-Forwarded-For: 192.0.2.1\r\n";
        assert_eq!(from("10.0.0.1", said), "192.0.2.1");
        assert_eq!(from("::ffff:10.0.0.1", said), "192.0.2.1");
        assert_eq!(from("192.0.2.9", said), "192.0.2.9");
        assert_eq!(from("10.0.0.1", ""), "10.0.0.1");
        // The client's own value precedes those added by proxies.
        let spoofed = "X-Forwarded-For: 1.1.1.1, 192.0.2.1\r\nX-Forwarded-For: 10.0.0.2\r\n";
        assert_eq!(from("10.0.0.1", spoofed), "192.0.2.1");
        assert_eq!(from("10.0.0.1", "X-Forwarded-For: 192.0.2.1:4711\r\n"), "192.0.2.1");
        assert_eq!(from("10.0.0.1", "X-Forwarded-For: 192.0.2.1, nonsense\r\n"), "10.0.0.1");
    }

    #[test]
    fn the_forwarded_scheme_and_host_are_honored_likewise() {
        let reachable = reachable();
        let peer = |address: &str| Peer { address: address.parse().ok(), ..Peer::default() };
        let said = head("X-Forwarded-Proto: https\r\nX-Forwarded-Host: gate.example\r\n");
        assert!(peer("10.0.0.1").is_secure(&reachable, &said));
        assert!(!peer("192.0.2.9").is_secure(&reachable, &said));
        assert_eq!(peer("10.0.0.1").host(&reachable, &said), "gate.example");
        assert_eq!(peer("192.0.2.9").host(&reachable, &said), "localhost");
        let foreign = head("X-Forwarded-Host: evil.example\r\n");
        assert_eq!(peer("10.0.0.1").host(&reachable, &foreign), "localhost");
    }
}
