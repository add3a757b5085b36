//! Requests to addresses that a server names: its metadata, authorization server and token endpoint.
//!
//! A server chooses these addresses, so they must not lead further into a network than the server's own: a server on
//! the internet cannot make the gateway contact a private network or this machine. A host name is resolved once, its
//! addresses are checked, and the connection goes to a checked address, so that a later DNS answer does not matter.
//! Responses are bounded in size, redirects in number, and each hop is checked alike.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde_json::Value;
use toolward_wire::Raw;

use crate::http_client::fetch::{self, Document, Request};
use crate::http_client::{Address, ClientTls};

/// The maximum size of a document.
pub(crate) const MAX_BYTES: usize = 256 << 10;
/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of redirects of a metadata document.
const MAX_REDIRECTS: usize = 3;

/// How close an address is to this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Zone {
    Public,
    Private,
    /// This machine, and link-local addresses, where clouds have their metadata services.
    Local,
}

impl Zone {
    pub(crate) fn of(ip: IpAddr) -> Zone {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Zone::of_v4(ip),
            IpAddr::V6(ip) => Zone::of_v6(ip),
        }
    }

    fn of_v4(ip: Ipv4Addr) -> Zone {
        let [a, b, c, _] = ip.octets();
        if ip.is_loopback() || ip.is_link_local() || a == 0 {
            return Zone::Local;
        }
        let is_shared = a == 100 && (64..128).contains(&b);
        let is_benchmark = a == 198 && (b == 18 || b == 19);
        let is_special = (a, b, c) == (192, 0, 0) || a >= 224;
        match ip.is_private() || is_shared || is_benchmark || is_special {
            true => Zone::Private,
            false => Zone::Public,
        }
    }

    fn of_v6(ip: Ipv6Addr) -> Zone {
        if ip.is_loopback() || ip.is_unspecified() || ip.is_unicast_link_local() {
            return Zone::Local;
        }
        let [first, second, .., seventh, eighth] = ip.segments();
        let v4 = |high: u16, low: u16| {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            Zone::of_v4(Ipv4Addr::new(a, b, c, d))
        };
        // Addresses that contain an IPv4 address: NAT64, 6to4, and the deprecated IPv4-compatible form.
        if first == 0x64 && second == 0xff9b || ip.segments()[..6] == [0; 6] {
            return v4(seventh, eighth);
        }
        if first == 0x2002 {
            return v4(second, ip.segments()[2]);
        }
        match ip.is_unique_local() || ip.is_multicast() || first & 0xffc0 == 0xfec0 {
            true => Zone::Private,
            false => Zone::Public,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Zone::Public => "public",
            Zone::Private => "private",
            Zone::Local => "local",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Zone> {
        [Zone::Public, Zone::Private, Zone::Local].into_iter().find(|zone| zone.as_str() == text)
    }
}

/// Sends requests on behalf of one server.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    /// The closest zone that may be contacted: that of the server.
    closest: Zone,
    zone_of: fn(IpAddr) -> Zone,
    /// The `tls` of the server, for requests to its own host.
    tls: Option<(String, ClientTls)>,
}

impl Network {
    /// For a server whose zone is known.
    pub(crate) fn new(closest: Zone, server: &Address, tls: Option<&ClientTls>) -> Network {
        let tls = tls.map(|tls| (server.host.to_ascii_lowercase(), tls.clone()));
        Network { closest, zone_of: Zone::of, tls }
    }

    /// For the first request to a server, which determines its zone. The address comes from the configuration.
    pub(crate) fn unlimited(server: &Address, tls: Option<&ClientTls>) -> Network {
        Network::new(Zone::Local, server, tls)
    }

    #[cfg(test)]
    pub(crate) fn with_zones(closest: Zone, zone_of: fn(IpAddr) -> Zone) -> Network {
        Network { closest, zone_of, tls: None }
    }

    pub(crate) fn zone(&self) -> Zone {
        self.closest
    }

    /// The same, limited to the zone of the server's own addresses. A server that has a public address is public.
    pub(crate) async fn limited_to(&self, server: &Address) -> Result<Network, String> {
        let closest = match fetch::is_proxied(server) {
            true => self.literal_zone(server).unwrap_or(Zone::Public),
            false => {
                let found = lookup(server).await?;
                let zones = found.iter().map(|at| (self.zone_of)(at.ip()));
                zones.min().ok_or("the host has no address")?
            }
        };
        Ok(Network { closest, ..self.clone() })
    }

    /// The zone of an address that is written as a number.
    fn literal_zone(&self, address: &Address) -> Option<Zone> {
        match address.host.parse() {
            Ok(ip) => Some((self.zone_of)(ip)),
            Err(_) if address.host.eq_ignore_ascii_case("localhost") => Some(Zone::Local),
            Err(_) => None,
        }
    }

    /// The checked addresses of a host. `None` if a proxy resolves it.
    async fn checked(&self, address: &Address) -> Result<Option<Vec<SocketAddr>>, String> {
        let refused = || {
            let (host, zone) = (&address.host, self.closest.as_str());
            format!(
                "`{host}` is not a {zone} address, and a server with a {zone} address must not refer to it"
            )
        };
        if fetch::is_proxied(address) {
            let allowed = self.literal_zone(address).is_none_or(|zone| zone <= self.closest);
            return if allowed { Ok(None) } else { Err(refused()) };
        }
        let mut found = lookup(address).await?;
        found.retain(|at| (self.zone_of)(at.ip()) <= self.closest);
        if found.is_empty() { Err(refused()) } else { Ok(Some(found)) }
    }

    /// Sends one request. Errors do not contain the response.
    pub(crate) async fn send(&self, url: &str, request: Request<'_>) -> Result<Document, String> {
        let address = secure(url)?;
        let own = |(host, _): &&(String, ClientTls)| address.host.eq_ignore_ascii_case(host);
        let tls = self.tls.as_ref().filter(own).map(|(_, tls)| tls);
        let sent = async {
            let checked = self.checked(&address).await?;
            let sent = fetch::send(&address, checked.as_deref(), tls, request).await;
            sent.map_err(|error| error.to_string())
        };
        match tokio::time::timeout(TIMEOUT, sent).await {
            Ok(sent) => sent.map_err(|why| format!("{}: {why}", shown(url))),
            Err(_) => Err(format!("{}: it timed out", shown(url))),
        }
    }

    /// Fetches a JSON document, following redirects. `None` if there is no document at this address.
    pub(crate) async fn document(&self, url: &str) -> Result<Option<Value>, String> {
        let mut url = url.to_string();
        for _ in 0..=MAX_REDIRECTS {
            let got = self.send(&url, Request::get(MAX_BYTES)).await?;
            match got.status {
                200 => return json(&got.body, &url).map(Some),
                301 | 302 | 303 | 307 | 308 => {
                    let to = got.headers.get("location").unwrap_or_default();
                    url = redirected(&url, to)
                        .ok_or_else(|| format!("{}: a redirect without an address", shown(&url)))?;
                }
                400..500 => return Ok(None),
                status => return Err(format!("{}: status {status}", shown(&url))),
            }
        }
        Err(format!("{}: more than {MAX_REDIRECTS} redirects", shown(&url)))
    }
}

/// Parses a JSON document strictly.
pub(crate) fn json(body: &[u8], url: &str) -> Result<Value, String> {
    match Raw::scan(body, MAX_BYTES) {
        Ok(raw) if raw.is_object() => Ok(raw.to_json()),
        Ok(_) => Err(format!("{}: the response is not a JSON object", shown(url))),
        Err(error) => Err(format!("{}: the response is not valid JSON: {error}", shown(url))),
    }
}

/// An address to which secrets may be sent: `https`, or this machine.
pub(crate) fn secure(url: &str) -> Result<Address, String> {
    let address = Address::parse(url).map_err(|why| format!("{}: {why}", shown(url)))?;
    if url.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return Err(format!("{}: it contains characters that a URL cannot have", shown(url)));
    }
    match address.tls || address.is_loopback() {
        true => Ok(address),
        false => Err(format!("{}: it is not `https`", shown(url))),
    }
}

/// A URL for people: without its query, which could contain secrets, and without control characters.
pub(crate) fn shown(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    url.chars().filter(|c| c.is_ascii_graphic()).take(200).collect()
}

fn redirected(from: &str, to: &str) -> Option<String> {
    if to.contains("://") {
        return Some(to.into());
    }
    let origin_end = from.find("://")? + 3;
    let path_at = from.get(origin_end..)?.find(['/', '?', '#']);
    let origin = path_at.map_or(from, |at| from.get(..origin_end + at).unwrap_or(from));
    (to.starts_with('/') && !to.starts_with("//")).then(|| format!("{origin}{to}"))
}

async fn lookup(address: &Address) -> Result<Vec<SocketAddr>, String> {
    let found = tokio::net::lookup_host((address.host.as_str(), address.port)).await;
    found.map(Iterator::collect).map_err(|error| format!("`{}`: {error}", address.host))
}

#[cfg(test)]
mod tests;
