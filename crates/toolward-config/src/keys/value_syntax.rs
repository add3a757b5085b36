//! Value syntaxes: durations, sizes, rates, addresses, references to secrets.
//!
//! Each has one parser, used for validation and for resolving.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use toolward_policy::Rate;
use toolward_policy::rate::Per;

use crate::diagnostics::sanitize::quoted;

/// A value with invalid syntax: the message, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    /// The value may be a secret and must not be printed.
    pub(crate) secret: bool,
}

impl SyntaxError {
    pub(crate) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        SyntaxError { message: message.into(), help: Some(help.into()), secret: false }
    }

    fn secret(message: impl Into<String>, help: impl Into<String>) -> Self {
        SyntaxError { secret: true, ..SyntaxError::new(message, help) }
    }
}

type Form<T> = Result<T, SyntaxError>;

/// `250ms`, `5s`, `2 min`, `1h`, `7 days`.
pub(crate) fn duration(text: &str) -> Form<Duration> {
    let help = "write a whole number and a unit: `250ms`, `5s`, `10min`, `1h`, `7d`";
    let (number, unit) = number_and_unit(text);
    let millis = match unit {
        "ms" => 1,
        "s" | "sec" | "second" | "seconds" => 1000,
        "m" | "min" | "minute" | "minutes" => 60_000,
        "h" | "hour" | "hours" => 3_600_000,
        "d" | "day" | "days" => 86_400_000,
        "" => {
            return Err(SyntaxError::new(
                format!("the duration {} has no unit", quoted(text)),
                help,
            ));
        }
        _ => {
            return Err(SyntaxError::new(format!("{} is not a duration", quoted(text)), help));
        }
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(millis))
        // A hundred years: more is a typo, and would overflow clocks.
        .filter(|millis| *millis <= 3_153_600_000_000)
        .map(Duration::from_millis)
        .ok_or_else(|| SyntaxError::new(format!("{} is not a duration", quoted(text)), help))
}

/// `0.01`, `1%`: a number from 0 to 1.
pub(crate) fn ratio(text: &str) -> Form<f64> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    let digits = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'%' | b' '));
    number.ok().filter(|ratio| digits && (0.0..=1.0).contains(ratio)).ok_or_else(|| {
        let help = "write a number from 0 to 1, or a percentage: `0.01`, `1%`";
        SyntaxError::new(format!("{} is not a ratio", quoted(text)), help)
    })
}

/// `4 MiB`, `64KiB`, `1000000` (bytes).
pub(crate) fn size(text: &str) -> Form<u64> {
    let help = "write a whole number and a unit: `512 KiB`, `4 MiB`, `1 GiB`";
    let (number, unit) = number_and_unit(text);
    let bytes: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => {
            return Err(SyntaxError::new(format!("{} is not a size", quoted(text)), help));
        }
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(bytes))
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| SyntaxError::new(format!("{} is not a size", quoted(text)), help))
}

fn number_and_unit(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    (number, unit.strip_prefix(' ').unwrap_or(unit))
}

/// `100/min`, `5/s burst 10`, `1000/day`.
pub(crate) fn rate(text: &str) -> Form<Rate> {
    let (rate, burst) = match text.split_once(" burst ") {
        Some((rate, burst)) => (rate, Some(burst)),
        None => (text, None),
    };
    // More than a billion is a typo.
    let count = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|count| digits && (1..=1_000_000_000).contains(count))
    };
    let unit = |unit: &str| match unit {
        "s" => Some(Per::Second),
        "min" => Some(Per::Minute),
        "h" | "hour" => Some(Per::Hour),
        "d" | "day" => Some(Per::Day),
        _ => None,
    };
    let read = || {
        let (number, per) = rate.split_once('/')?;
        let burst = match burst {
            Some(burst) => Some(count(burst)?),
            None => None,
        };
        Some(Rate { count: count(number)?, per: unit(per)?, burst })
    };
    read().ok_or_else(|| {
        SyntaxError::new(
            format!("{} is not a rate", quoted(text)),
            "write a count and a time: `100/min`, `5/s burst 10`, `1000/day`",
        )
    })
}

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// `127.0.0.1:7410`, `[::1]:7410`, `localhost:7410`, `unix:PATH`.
pub(crate) fn listen(text: &str) -> Form<Listen> {
    match text.strip_prefix("unix:") {
        Some("") => {
            Err(SyntaxError::new("`unix:` has no path", "write its path: `unix:run/gateway.sock`"))
        }
        Some(path) => Ok(Listen::Unix(PathBuf::from(path))),
        None => address(text).map(Listen::Tcp),
    }
}

/// An IP address and a port.
pub(crate) fn address(text: &str) -> Form<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let help = match text.rsplit_once(':') {
        Some(("localhost", port)) => match port.parse() {
            Ok(port) => return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            Err(_) => "a port is a number from 0 to 65535".to_owned(),
        },
        Some(("" | "*", port)) => {
            format!("write `127.0.0.1:{port}`, or `0.0.0.0:{port}` for every address")
        }
        Some((host, _)) if host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4()) => {
            "a port is a number from 0 to 65535".to_owned()
        }
        _ => "write an IP address and a port: `127.0.0.1:7410`, `[::1]:7410`".to_owned(),
    };
    Err(SyntaxError::new(format!("{} is not an address", quoted(text)), help))
}

/// An address or a range of addresses, such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpRange {
    pub address: IpAddr,
    pub prefix: u8,
}

impl IpRange {
    pub fn contains(&self, ip: IpAddr) -> bool {
        let shared = |a: u128, b: u128, bits: u32| {
            let width = bits - u32::from(self.prefix).min(bits);
            (a ^ b).checked_shr(width).unwrap_or(0) == 0
        };
        match (self.address, ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => shared(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => shared(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

pub(crate) fn ip_range(text: &str) -> Form<IpRange> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let range = address.parse::<IpAddr>().ok().and_then(|address| {
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.parse().ok().filter(|prefix| *prefix <= most)?,
            None => most,
        };
        Some(IpRange { address, prefix })
    });
    range.ok_or_else(|| {
        SyntaxError::new(
            format!("{} is not an IP address or range", quoted(text)),
            "write `10.1.2.3` or `10.0.0.0/8`",
        )
    })
}

/// `https://host/path` or `http://host:port/path`, without user, password or fragment.
pub(crate) fn url(text: &str) -> Form<()> {
    let shown = quoted(text);
    let Some((_, rest)) = scheme(text) else {
        return Err(SyntaxError::new(
            format!("{shown} is not a URL"),
            "write it in full: `https://host/path`",
        ));
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        return Err(SyntaxError::new(
            format!("the URL {shown} has no host"),
            "write `https://host/path`",
        ));
    }
    if authority.contains('@') {
        return Err(SyntaxError::secret(
            "a URL must not contain a user name or password",
            "set credentials in `headers`, as a reference such as `${NAME}`",
        ));
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(SyntaxError::new(
            format!("the URL {shown} contains a space"),
            "write a space as `%20`",
        ));
    }
    Ok(())
}

/// Whether a URL goes over the network without TLS.
pub(crate) fn in_the_clear(url: &str) -> bool {
    let Some(("http", rest)) = scheme(url) else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let loopback = host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    !loopback && !host.eq_ignore_ascii_case("localhost")
}

/// `https://host` or `https://host:port`, as browsers send it.
pub(crate) fn origin(text: &str) -> Form<()> {
    match scheme(text) {
        Some((_, host)) if !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']) => Ok(()),
        _ => Err(SyntaxError::new(
            format!("{} is not an origin", quoted(text)),
            "write scheme and host, without a path: `https://app.example`",
        )),
    }
}

fn scheme(text: &str) -> Option<(&str, &str)> {
    text.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"))
}

/// A token's SHA-256, or the text of a reference to a token.
pub(crate) fn token(text: &str) -> Form<Option<[u8; 32]>> {
    if let Some(hex) = text.strip_prefix("sha256:") {
        return sha256(hex).map(Some).ok_or_else(|| {
            let digits = hex.chars().count();
            SyntaxError::secret(
                format!("`sha256:` is followed by 64 hex digits, not by these {digits} characters"),
                "hash the token: `printf %s \"$TOKEN\" | sha256sum`",
            )
        });
    }
    match reference_parts(text)?.as_slice() {
        [ReferencePart::Env(_) | ReferencePart::File(_)] => Ok(None),
        [ReferencePart::Literal(_)] | [] => Err(SyntaxError::secret(
            "a token must not be in the file in plain text",
            "write a reference, `${NAME}` or `${file:PATH}`, or `sha256:` and its hash",
        )),
        _ => Err(SyntaxError::secret(
            "a token is a single reference without other text",
            "write `${NAME}`, `${file:PATH}`, or `sha256:` and its hash",
        )),
    }
}

/// The attribute by which an agent's client certificate is identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateMark {
    /// SHA-256 of the certificate.
    Sha256([u8; 32]),
    /// The common name of its subject.
    CommonName(String),
    /// A host among its alternative names, in lower case.
    Dns(String),
    /// A URI among its alternative names.
    Uri(String),
}

/// `CN=reviewer`, `DNS:build.example`, `URI:spiffe://corp/build`, `sha256:…`.
pub(crate) fn certificate(text: &str) -> Form<CertificateMark> {
    let help = "write `CN=NAME`, `DNS:HOST`, `URI:URI`, or `sha256:` and the certificate's hash";
    let (kind, value) = match text.find([':', '=']) {
        Some(at) => text.split_at(at + 1),
        None => ("", text),
    };
    match (kind, value) {
        ("sha256:", hex) => {
            let plain = hex.replace(':', "");
            sha256(&plain).map(CertificateMark::Sha256).ok_or_else(|| {
                SyntaxError::new(
                    "`sha256:` is followed by 64 hex digits of a certificate's hash",
                    "`openssl x509 -in FILE -noout -fingerprint -sha256` prints them",
                )
            })
        }
        (_, "") => {
            Err(SyntaxError::new(format!("{} identifies no certificate", quoted(text)), help))
        }
        ("CN=", name) => Ok(CertificateMark::CommonName(name.into())),
        ("DNS:", host) => Ok(CertificateMark::Dns(host.to_ascii_lowercase())),
        ("URI:", uri) => Ok(CertificateMark::Uri(uri.into())),
        _ => Err(SyntaxError::new(
            format!("{} is not an attribute of a certificate", quoted(text)),
            help,
        )),
    }
}

fn sha256(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    let mut hash = [0u8; 32];
    for (byte, digits) in hash.iter_mut().zip(hex.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).ok().filter(|d| !d.starts_with('+'))?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(hash)
}

/// A piece of a value with references.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ReferencePart {
    /// A variable of a client's file, with the value to use if it is not set: `${NAME:-VALUE}`.
    EnvOr(String, String),
    Literal(String),
    Env(String),
    File(String),
}

/// Separates a variable and its default value in the rewritten text of a client's file. In native
/// files `${NAME:-VALUE}` is an error: a missing secret must not be replaced silently.
///
/// A code point that Unicode reserves for internal use.
pub(crate) const CLIENT_DEFAULT: char = '\u{fdd0}';

/// `Bearer ${NAME}` in pieces.
pub(crate) fn reference_parts(text: &str) -> Form<Vec<ReferencePart>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, reference)) = rest.split_once("${") {
        if !before.is_empty() {
            parts.push(ReferencePart::Literal(before.to_owned()));
        }
        let Some((name, after)) = reference.split_once('}') else {
            return Err(SyntaxError::secret(
                "`${` is not closed",
                "write `${NAME}` or `${file:PATH}`",
            ));
        };
        parts.push(reference_part(name)?);
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(ReferencePart::Literal(rest.to_owned()));
    }
    Ok(parts)
}

fn reference_part(name: &str) -> Form<ReferencePart> {
    if let Some(path) = name.strip_prefix("file:") {
        if path.is_empty() {
            return Err(SyntaxError::secret("`${file:}` has no path", "write `${file:PATH}`"));
        }
        return Ok(ReferencePart::File(path.to_owned()));
    }
    if name.starts_with("input:") {
        return Err(SyntaxError::secret(
            "VS Code prompts for `${input:…}`, but the gateway cannot prompt",
            "put the value in a variable or a file, and write `${env:NAME}` or `${file:PATH}`",
        ));
    }
    if let Some((variable, default)) = name.split_once(CLIENT_DEFAULT)
        && is_variable(variable)
    {
        return Ok(ReferencePart::EnvOr(variable.to_owned(), default.to_owned()));
    }
    // As VS Code, Cursor and Windsurf write a variable.
    let variable = name.strip_prefix("env:").unwrap_or(name);
    if is_variable(variable) {
        return Ok(ReferencePart::Env(variable.to_owned()));
    }
    let help = match name.contains(":-") {
        true => "default values are not supported: set the variable, or write the value",
        false => "write `${NAME}` for a variable, or `${file:PATH}`",
    };
    Err(SyntaxError::secret("the text in `${…}` is not a reference", help))
}

/// Whether a word can be the name of a variable.
pub(crate) fn is_variable(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && word.starts_with(|c: char| !c.is_ascii_digit())
}

/// A name that HTTP allows for a header.
pub(crate) fn header_name(name: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    !name.is_empty() && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1 day"), Ok(Duration::from_secs(86_400)));
        for bad in [
            "",
            "5",
            "5 parsecs",
            "-1s",
            "1.5s",
            "s",
            "99999999999999999999s",
            "9999999999999d",
            "5  s",
            "٣s",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert_eq!(size("4 MiB"), Ok(4 << 20));
        assert_eq!(size("1000"), Ok(1000));
        for bad in ["", "0", "4 mib", "4Mb", "-1", "99999999999 TiB", "1.5 GiB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses() {
        assert!(matches!(listen("[::1]:1"), Ok(Listen::Tcp(_))));
        assert_eq!(listen("localhost:80"), Ok(Listen::Tcp(([127, 0, 0, 1], 80).into())));
        assert_eq!(listen("unix:a/b"), Ok(Listen::Unix("a/b".into())));
        for bad in [
            "",
            "7410",
            ":7410",
            "localhost",
            "localhost:x",
            "127.0.0.1",
            "127.0.0.1:99999",
            "::1:80:",
            "unix:",
        ] {
            assert!(listen(bad).is_err(), "{bad}");
        }
        let range = ip_range("10.0.0.0/8").unwrap();
        assert!(range.contains([10, 1, 2, 3].into()) && !range.contains([11, 0, 0, 1].into()));
        assert!(ip_range("::/0").unwrap().contains("fe80::1".parse().unwrap()));
        assert!(ip_range("10.0.0.0/33").is_err());
    }

    #[test]
    fn tokens_are_hashes_or_references() {
        assert_eq!(token(&format!("sha256:{}", "0f".repeat(32))), Ok(Some([15; 32])));
        assert_eq!(token("${A_1}"), Ok(None));
        assert_eq!(token("${file:x y}"), Ok(None));
        for bad in
            ["", "secret", "sha256:abc", "x${A}", "${A}${B}", "${A", "${}", "${A:-b}", "${1}"]
        {
            assert!(token(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_and_urls() {
        assert_eq!(rate("100/min"), Ok(Rate { count: 100, per: Per::Minute, burst: None }));
        for good in ["5/s burst 10", "1000/day", "1/h", "1000000000/s"] {
            assert_eq!(rate(good).unwrap().to_string(), good);
        }
        for bad in
            ["100", "0/s", "5/s burst x", "5/s burst 0", "+5/s", "1/week", "1000000001/s", "1/s "]
        {
            assert!(rate(bad).is_err(), "{bad}");
        }
        assert!(url("https://a.example/x?y").is_ok());
        for bad in ["a.example", "ftp://a", "https://", "https://u:p@h/", "https://a b"] {
            assert!(url(bad).is_err(), "{bad}");
        }
        for here in ["http://localhost:1/x", "http://127.0.0.1", "http://[::1]:1/", "https://a"] {
            assert!(!in_the_clear(here), "{here}");
        }
        for beyond in ["http://a.example/x", "http://10.0.0.1:1", "http://localhost.example"] {
            assert!(in_the_clear(beyond), "{beyond}");
        }
        assert!(origin("http://localhost:3000").is_ok() && origin("https://a/").is_err());
    }
}
