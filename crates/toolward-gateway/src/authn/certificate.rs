//! The names in a client certificate. The certificate itself was verified during the TLS handshake,
//! against `tls.client_ca`.

use rustls_pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use webpki::EndEntityCert;

/// The names of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    fingerprint: [u8; 32],
    common_name: Option<String>,
    /// In lower case.
    hosts: Vec<String>,
    uris: Vec<String>,
}

/// The part of a certificate that identifies an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Mark {
    /// The SHA-256 of the certificate.
    Sha256([u8; 32]),
    /// `CN` of the subject.
    CommonName(String),
    /// A host in the alternative names, in lower case.
    Dns(String),
    /// A URI in the alternative names.
    Uri(String),
}

impl Certificate {
    /// Parses a certificate; `None` if it is malformed.
    pub fn read(certificate: &CertificateDer<'_>) -> Option<Certificate> {
        let read = EndEntityCert::try_from(certificate).ok()?;
        Some(Certificate {
            fingerprint: Sha256::digest(certificate).into(),
            common_name: common_name(read.subject()),
            hosts: read.valid_dns_names().map(str::to_ascii_lowercase).collect(),
            uris: read.valid_uri_names().map(String::from).collect(),
        })
    }

    /// All marks that can identify an agent.
    pub(super) fn marks(&self) -> impl Iterator<Item = Mark> {
        let name = self.common_name.iter().cloned().map(Mark::CommonName);
        let hosts = self.hosts.iter().cloned().map(Mark::Dns);
        let uris = self.uris.iter().cloned().map(Mark::Uri);
        [Mark::Sha256(self.fingerprint)].into_iter().chain(name).chain(hosts).chain(uris)
    }
}

/// The common name of a subject, if it has exactly one.
fn common_name(subject: &[u8]) -> Option<String> {
    /// 2.5.4.3
    const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    const SEQUENCE: u8 = 0x30;
    const SET: u8 = 0x31;
    const OBJECT: u8 = 0x06;
    /// UTF8String, PrintableString and IA5String, all of which are UTF-8.
    const TEXT: [u8; 3] = [0x0c, 0x13, 0x16];
    let mut found = None;
    let mut relative = subject;
    while !relative.is_empty() {
        let (tag, mut attributes, rest) = element(relative)?;
        relative = rest;
        if tag != SET {
            return None;
        }
        while !attributes.is_empty() {
            let (tag, attribute, rest) = element(attributes)?;
            attributes = rest;
            let (kind, name, value) = element(attribute)?;
            if tag != SEQUENCE || kind != OBJECT {
                return None;
            }
            if name == COMMON_NAME {
                let (tag, text, _) = element(value)?;
                let text = std::str::from_utf8(text).ok().filter(|_| TEXT.contains(&tag))?;
                if found.replace(text.to_string()).is_some() {
                    return None;
                }
            }
        }
    }
    found
}

/// When a certificate expires, in seconds since the Unix epoch; `None` if that cannot be parsed.
pub(crate) fn ends(certificate: &[u8]) -> Option<u64> {
    /// Tag `[0]`, which old certificates do not have.
    const VERSION: u8 = 0xa0;
    let (_, certificate, _) = element(certificate)?;
    let (_, to_be_signed, _) = element(certificate)?;
    let (tag, _, rest) = element(to_be_signed)?;
    let mut rest = if tag == VERSION { rest } else { to_be_signed };
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        (_, _, rest) = element(rest)?;
    }
    let (_, validity, _) = element(rest)?;
    let (_, _, rest) = element(validity)?;
    let (tag, text, _) = element(rest)?;
    seconds(tag, std::str::from_utf8(text).ok()?)
}

/// Parses a UTCTime or GeneralizedTime.
fn seconds(tag: u8, text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').filter(|text| text.is_ascii())?;
    let number = |text: &str, at: usize| text.get(at..at + 2)?.parse::<u64>().ok();
    let (year, rest) = match (tag, text.len()) {
        (0x17, 12) => {
            let year = number(text, 0)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
        }
        (0x18, 14) => (number(text, 0)? * 100 + number(text, 2)?, text.get(4..)?),
        _ => return None,
    };
    let (month, day) = (number(rest, 0)?, number(rest, 2)?);
    let (hour, minute, second) = (number(rest, 4)?, number(rest, 6)?, number(rest, 8)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // In years that begin in March, the leap day is the last day.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    // 1 January 1970.
    let days = days.checked_sub(719_468)?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Splits off the first DER element: its tag, its content, and the rest.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81 => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
        0x82 => {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*length)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(oid: u8, tag: u8, text: &[u8]) -> Vec<u8> {
        let mut value = vec![0x06, 3, 0x55, 0x04, oid, tag, text.len() as u8];
        value.extend_from_slice(text);
        let mut out = vec![0x31, value.len() as u8 + 2, 0x30, value.len() as u8];
        out.append(&mut value);
        out
    }

    #[test]
    fn times_of_certificates_are_seconds() {
        assert_eq!(seconds(0x17, "700101000000Z"), Some(0));
        assert_eq!(seconds(0x17, "000229000001Z"), Some(951_782_401));
        assert_eq!(seconds(0x17, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(seconds(0x18, "20500101000000Z"), Some(2_524_608_000));
        assert_eq!(seconds(0x18, "20261116120000Z"), Some(1_794_830_400));
        for wrong in
            ["", "Z", "20261116120000", "20261316120000Z", "2026111612000Z", "é0500101000000Z"]
        {
            assert_eq!(seconds(0x18, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_subject_has_one_common_name_or_none() {
        let organisation = attribute(10, 0x0c, b"corp");
        let name = attribute(3, 0x0c, "grüße".as_bytes());
        let subject = [organisation.clone(), name.clone()].concat();
        assert_eq!(common_name(&subject).unwrap(), "grüße");
        assert_eq!(common_name(&organisation), None);
        assert_eq!(common_name(&[name.clone(), name.clone()].concat()), None);
        assert_eq!(common_name(&attribute(3, 0x1e, b"\0a")), None, "another encoding");
        assert_eq!(common_name(&attribute(3, 0x0c, b"\xff")), None);
        for cut in 1..subject.len() {
            if cut != organisation.len() {
                assert_eq!(common_name(&subject[..cut]), None, "cut at {cut}");
            }
        }
    }
}
