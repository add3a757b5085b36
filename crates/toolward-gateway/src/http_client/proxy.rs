//! Proxies from the environment: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, in upper or lower
//! case.
//!
//! The rules are those of Go's `net/http`, which most servers and their operators use: loopback
//! addresses are never proxied, and an entry of `NO_PROXY` is `*`, an address, a network
//! (`10.0.0.0/8`), a name that also matches its subdomains, or a name with a leading dot that
//! matches only its subdomains; names and addresses can have a port.

use std::net::IpAddr;
use std::sync::OnceLock;

use super::Address;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    pub(super) host: String,
    pub(super) port: u16,
    /// `USER:PASSWORD`.
    pub(super) credentials: Option<Vec<u8>>,
}

/// Omits the credentials.
impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({}:{})", self.host, self.port)
    }
}

/// The proxies for both schemes, and the exceptions.
#[derive(Debug, Default)]
pub(super) struct Proxies {
    http: Option<Result<Proxy, String>>,
    https: Option<Result<Proxy, String>>,
    exceptions: Vec<Exception>,
}

#[derive(Debug, PartialEq, Eq)]
enum Exception {
    Everything,
    Network {
        address: IpAddr,
        bits: u32,
    },
    Address {
        address: IpAddr,
        port: Option<u16>,
    },
    /// A domain with its leading dot. `itself`: the domain too, not only its subdomains.
    Domain {
        suffix: String,
        itself: bool,
        port: Option<u16>,
    },
}

/// The proxies of this process's environment, read once.
pub(super) fn from_environment() -> &'static Proxies {
    static PROXIES: OnceLock<Proxies> = OnceLock::new();
    PROXIES.get_or_init(|| Proxies::new(|name| std::env::var(name).ok()))
}

impl Proxies {
    fn new(get: impl Fn(&str) -> Option<String>) -> Proxies {
        let either = |name: &str| {
            let value = get(name).filter(|value| !value.is_empty());
            value.or_else(|| get(&name.to_ascii_lowercase())).filter(|value| !value.is_empty())
        };
        let proxy = |name: &str| {
            let parsed = |url: String| parse(&url).map_err(|why| format!("`{name}`: {why}"));
            either(name).map(parsed)
        };
        // In a CGI program, `HTTP_PROXY` is the `Proxy` header of a request.
        let is_cgi = get("REQUEST_METHOD").is_some();
        let exceptions = either("NO_PROXY").unwrap_or_default();
        Proxies {
            http: proxy("HTTP_PROXY").filter(|_| !is_cgi),
            https: proxy("HTTPS_PROXY"),
            exceptions: exceptions.split(',').filter_map(Exception::parse).collect(),
        }
    }

    /// The proxy for an address, or why the configured one cannot be used.
    pub(super) fn of(&self, address: &Address) -> Option<Result<Proxy, String>> {
        let proxy = if address.tls { &self.https } else { &self.http };
        let is_excepted = || self.exceptions.iter().any(|exception| exception.matches(address));
        proxy.clone().filter(|_| !address.is_loopback() && !is_excepted())
    }
}

/// Parses `[http://][USER:PASSWORD@]HOST[:PORT]`.
fn parse(url: &str) -> Result<Proxy, String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(format!("proxies with the scheme `{scheme}` are not supported, only `http`"));
    }
    let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (credentials, host) = match rest.rsplit_once('@') {
        Some((credentials, host)) => (Some(unescaped(credentials)), host),
        None => (None, rest),
    };
    let credentials = credentials.map(|mut pair| {
        if !pair.contains(&b':') {
            pair.push(b':');
        }
        pair
    });
    let address = Address::parse(&format!("http://{host}"))?;
    Ok(Proxy { host: address.host, port: address.port, credentials })
}

/// Decodes `%XX`.
fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.filter(|_| byte == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    out
}

impl Exception {
    fn parse(entry: &str) -> Option<Exception> {
        let entry = entry.trim().to_ascii_lowercase();
        if entry.is_empty() {
            return None;
        }
        if entry == "*" {
            return Some(Exception::Everything);
        }
        if let Some((address, bits)) = entry.split_once('/') {
            let (address, bits) = (address.parse().ok()?, bits.parse().ok()?);
            return Some(Exception::Network { address, bits });
        }
        if let Ok(address) = entry.trim_matches(['[', ']']).parse() {
            return Some(Exception::Address { address, port: None });
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (&*entry, None),
        };
        if let Ok(address) = host.trim_matches(['[', ']']).parse() {
            return Some(Exception::Address { address, port });
        }
        let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        let host = host.trim_end_matches('.');
        let itself = !host.starts_with('.');
        let suffix = if itself { format!(".{host}") } else { host.to_string() };
        Some(Exception::Domain { suffix, itself, port })
    }

    fn matches(&self, address: &Address) -> bool {
        let host = address.host.trim_end_matches('.').to_ascii_lowercase();
        let ip = host.parse::<IpAddr>().ok();
        let is_port = |port: &Option<u16>| port.is_none_or(|port| port == address.port);
        match self {
            Exception::Everything => true,
            Exception::Network { address, bits } => {
                ip.is_some_and(|ip| is_in_network(ip, *address, *bits))
            }
            Exception::Address { address, port } => ip == Some(*address) && is_port(port),
            Exception::Domain { suffix, itself, port } => {
                let is_it = *itself && suffix.strip_prefix('.') == Some(&*host);
                (is_it || host.ends_with(suffix.as_str())) && is_port(port)
            }
        }
    }
}

fn is_in_network(ip: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            let differ = u32::from(ip) ^ u32::from(network);
            bits <= 32 && differ.checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => {
            let differ = u128::from(ip) ^ u128::from(network);
            bits <= 128 && differ.checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Proxies {
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.to_string())
        };
        Proxies::new(get)
    }

    fn proxy_of(proxies: &Proxies, url: &str) -> Option<String> {
        let proxy = proxies.of(&Address::parse(url).unwrap())?;
        Some(proxy.map_or_else(|why| why, |proxy| format!("{}:{}", proxy.host, proxy.port)))
    }

    #[test]
    fn each_scheme_has_its_proxy_in_either_case() {
        let both = proxies(&[("HTTP_PROXY", "http://plain:81"), ("https_proxy", "secure:82")]);
        assert_eq!(proxy_of(&both, "http://a.example/").as_deref(), Some("plain:81"));
        assert_eq!(proxy_of(&both, "https://a.example/").as_deref(), Some("secure:82"));
        for loopback in ["http://localhost/", "https://127.9.9.9/", "http://[::1]:8/"] {
            assert_eq!(proxy_of(&both, loopback), None, "{loopback}");
        }
        assert_eq!(proxy_of(&proxies(&[("HTTPS_PROXY", "")]), "https://a.example/"), None);
        let cgi = [("HTTP_PROXY", "http://plain:81"), ("REQUEST_METHOD", "GET")];
        assert_eq!(proxy_of(&proxies(&cgi), "http://a.example/"), None);
    }

    #[test]
    fn an_unusable_proxy_is_an_error_and_not_a_direct_connection() {
        for url in ["socks5://p:1", "http://p:port", "http://"] {
            let found = proxy_of(&proxies(&[("HTTPS_PROXY", url)]), "https://a.example/").unwrap();
            assert!(found.starts_with("`HTTPS_PROXY`: "), "{found}");
        }
    }

    #[test]
    fn credentials_of_a_proxy_are_decoded_and_not_printed() {
        let proxy = parse("http://us%40er:p%3Ass@proxy.example:3128/").unwrap();
        assert_eq!(proxy.credentials.as_deref(), Some(&b"us@er:p:ss"[..]));
        assert_eq!(format!("{proxy:?}"), "Proxy(proxy.example:3128)");
        assert_eq!(parse("u@p").unwrap().credentials.as_deref(), Some(&b"u:"[..]));
    }

    #[test]
    fn exceptions_match_as_they_do_in_go() {
        for (entry, url, excepted) in [
            ("*", "http://a.example/", true),
            ("a.example", "http://a.example/", true),
            ("a.example", "http://b.a.example/", true),
            ("a.example", "http://ba.example/", false),
            (".a.example", "http://a.example/", false),
            (".a.example", "http://b.a.example/", true),
            ("*.a.example", "http://b.a.example/", true),
            ("A.Example.", "http://a.EXAMPLE./", true),
            ("a.example:81", "http://a.example:81/", true),
            ("a.example:81", "http://a.example/", false),
            ("10.0.0.0/8", "http://10.9.8.7/", true),
            ("10.0.0.0/8", "http://11.9.8.7/", false),
            ("0.0.0.0/0", "http://11.9.8.7/", true),
            ("fd00::/8", "http://[fd12::1]/", true),
            ("fd00::/8", "http://[fe12::1]/", false),
            ("192.0.2.1", "http://192.0.2.1:80/", true),
            ("192.0.2.1:81", "http://192.0.2.1/", false),
            ("[2001:db8::1]:81", "http://[2001:db8::1]:81/", true),
            ("2001:db8::1", "http://[2001:db8::1]/", true),
            (" x , a.example ", "http://a.example/", true),
            ("", "http://a.example/", false),
        ] {
            let proxies = proxies(&[("HTTP_PROXY", "p:1"), ("no_proxy", entry)]);
            assert_eq!(proxy_of(&proxies, url).is_none(), excepted, "{entry} {url}");
        }
    }
}
