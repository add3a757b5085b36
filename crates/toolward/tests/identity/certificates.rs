//! TLS: the endpoint's certificate, which can be replaced, and client certificates, which can identify
//! agents.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::harness::*;
use crate::jwt::turned_away;

/// Certificates in a directory, created with openssl.
pub struct Papers<'f>(pub &'f Path);

impl Papers<'_> {
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn openssl(&self, arguments: &[&str]) {
        let made = Command::new("openssl").args(arguments).current_dir(self.0).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    pub fn authority(&self, name: &str) {
        let (key, certificate) = (format!("{name}.key"), format!("{name}.pem"));
        let mut arguments = vec!["req", "-x509", "-newkey", "ec", "-pkeyopt"];
        arguments.extend(["ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=ca"]);
        arguments.extend(["-addext", "keyUsage=critical,keyCertSign"]);
        arguments.extend(["-keyout", &key, "-out", &certificate]);
        self.openssl(&arguments);
    }

    /// A certificate signed by an authority: `NAME.pem` and `NAME.key`.
    pub fn sign(&self, authority: &str, name: &str, subject: &str, alternative: &str) {
        let (key, certificate) = (format!("{name}.key"), format!("{name}.pem"));
        let (by, by_key) = (format!("{authority}.pem"), format!("{authority}.key"));
        let alternative = format!("subjectAltName={alternative}");
        let mut arguments = vec!["req", "-x509", "-newkey", "ec", "-pkeyopt"];
        arguments.extend(["ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", subject]);
        arguments.extend([
            "-addext",
            &alternative,
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ]);
        arguments.extend(["-CA", &by, "-CAkey", &by_key, "-keyout", &key, "-out", &certificate]);
        self.openssl(&arguments);
    }

    fn fingerprint(&self, name: &str) -> String {
        let shown = Command::new("openssl")
            .args(["x509", "-noout", "-fingerprint", "-sha256", "-in", &format!("{name}.pem")])
            .current_dir(self.0)
            .output()
            .unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        format!("sha256:{}", shown.trim().split_once('=').unwrap().1)
    }

    /// A connection over TLS, as a client with or without a certificate.
    pub fn connect(
        &self,
        port: u16,
        client: Option<&str>,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("ca.pem")).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match client {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let file = |end: &str| self.path(&format!("{name}.{end}"));
                let chain = vec![CertificateDer::from_pem_file(file("pem")).unwrap()];
                let key = PrivateKeyDer::from_pem_file(file("key")).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let name = "localhost".try_into().unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
        StreamOwned::new(connection, stream)
    }

    /// One request over TLS. `Err` if there was no connection; otherwise the endpoint's certificate and
    /// the response.
    fn ask(
        &self,
        port: u16,
        client: Option<&str>,
        authorization: &str,
    ) -> Result<(Vec<u8>, String), String> {
        let mut stream = self.connect(port, client);
        let body = initialize(LEGACY).to_string();
        let length = body.len();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{authorization}Accept: */*\r\n\
             Content-Type: application/json\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        if answer.is_empty() {
            return Err(format!("{read:?}"));
        }
        let shown = stream.conn.peer_certificates().unwrap()[0].to_vec();
        Ok((shown, String::from_utf8(answer).unwrap()))
    }

    fn status(&self, port: u16, client: Option<&str>, authorization: &str) -> u16 {
        let (_, answer) = self.ask(port, client, authorization).unwrap();
        answer[9..12].parse().unwrap()
    }
}

/// A gateway with TLS.
pub fn secure(setup: Setup, tls: Value) -> Gate {
    let gate = setup.stdio("s", "legacy", names(&["t", "more"])).set("tls", tls).start();
    assert!(gate.said.lock().unwrap().contains("listening on https://"));
    gate
}

#[test]
fn the_certificate_is_read_again_when_its_files_change() {
    let setup = setup().agents(json!({"a": {"allow": {"servers": ["*"]}}}));
    let folder = tempfile::tempdir().unwrap();
    let papers = Papers(folder.path());
    papers.authority("ca");
    papers.sign("ca", "first", "/CN=first", "DNS:localhost");
    papers.sign("ca", "second", "/CN=second", "DNS:localhost");
    let place = |from: &str| {
        for end in ["pem", "key"] {
            std::fs::copy(
                papers.path(&format!("{from}.{end}")),
                papers.path(&format!("now.{end}")),
            )
            .unwrap();
        }
    };
    let der = |name: &str| {
        CertificateDer::from_pem_file(papers.path(&format!("{name}.pem"))).unwrap().to_vec()
    };
    place("first");
    let tls = json!({"cert": papers.path("now.pem"), "key": papers.path("now.key")});
    let gate = secure(setup, tls);
    let token = "Authorization: Bearer token-of-agent-a\r\n";
    let (shown, answer) = papers.ask(gate.port, None, token).unwrap();
    assert_eq!(shown, der("first"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(papers.status(gate.port, None, ""), 401);
    place("second");
    let now = || papers.ask(gate.port, None, token).unwrap().0;
    eventually("the new certificate", || (now() == der("second")).then_some(()));
    // A file that cannot be read changes nothing, and is logged.
    std::fs::write(papers.path("now.pem"), "-----BEGIN CERTIFICATE-----\nx").unwrap();
    eventually("it is logged", || {
        gate.said.lock().unwrap().contains("the previous certificate stays active").then_some(())
    });
    assert_eq!(now(), der("second"));
    // Neither does a certificate for another key.
    std::fs::copy(papers.path("first.pem"), papers.path("now.pem")).unwrap();
    eventually("it is logged", || {
        gate.said.lock().unwrap().contains("does not match the key").then_some(())
    });
    assert_eq!(now(), der("second"));
    place("first");
    eventually("the first again", || (now() == der("first")).then_some(()));
    // A plaintext request gets no plaintext response.
    let mut plain = gate.nobody().open("POST", &[], "{}");
    let mut answer = Vec::new();
    let _ = plain.stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert!(turned_away(&gate, 2).contains(&"the TLS handshake failed".into()));
}

#[test]
fn a_certificate_that_cannot_be_read_does_not_start() {
    for tls in [
        json!({"cert": "missing.pem", "key": "missing.key"}),
        json!({"cert": "toolward.yaml", "key": "toolward.yaml"}),
    ] {
        let setup = setup().stdio("s", "legacy", names(&["t"])).agents(everyone()).set("tls", tls);
        let (code, said) = setup.fails();
        assert_eq!(code, 3, "{said}");
        assert!(said.contains("`tls`"), "{said}");
    }
}

#[test]
fn a_client_certificate_identifies_its_configured_agent() {
    let folder = tempfile::tempdir().unwrap();
    let papers = Papers(folder.path());
    for authority in ["ca", "clients", "strangers"] {
        papers.authority(authority);
    }
    papers.sign("ca", "gate", "/CN=gate", "DNS:localhost");
    papers.sign("clients", "named", "/O=corp/CN=reviewer", "DNS:x.example");
    papers.sign("clients", "host", "/O=corp", "DNS:Build.example");
    papers.sign("clients", "uri", "/O=corp", "URI:spiffe://corp/deploy");
    papers.sign("clients", "known", "/CN=known", "DNS:y.example");
    papers.sign("clients", "nobody", "/CN=nobody", "DNS:z.example");
    papers.sign("clients", "two", "/CN=reviewer", "DNS:build.example");
    papers.sign("clients", "cased", "/CN=Reviewer", "DNS:z.example");
    papers.sign("clients", "twice", "/CN=reviewer/CN=reviewer", "DNS:z.example");
    papers.sign("strangers", "forged", "/CN=reviewer", "DNS:x.example");
    let agent = |mark: String| json!({"certificates": [mark], "allow": {"servers": ["*"]}});
    let setup = setup().agents(json!({
        "reviewer": agent("CN=reviewer".into()),
        "build": agent("DNS:build.EXAMPLE".into()),
        "deploy": agent("URI:spiffe://corp/deploy".into()),
        "known": agent(papers.fingerprint("known")),
    }));
    let tls = json!({
        "cert": papers.path("gate.pem"),
        "key": papers.path("gate.key"),
        "client_ca": papers.path("clients.pem"),
    });
    let gate = secure(setup, tls);
    let token = |agent: &str| format!("Authorization: Bearer token-of-agent-{agent}\r\n");
    for (client, agent) in
        [("named", "reviewer"), ("host", "build"), ("uri", "deploy"), ("known", "known")]
    {
        assert_eq!(papers.status(gate.port, Some(client), ""), 200, "{client}");
        // A token sent with it must identify the same agent.
        assert_eq!(papers.status(gate.port, Some(client), &token(agent)), 200, "{client}");
        let other = if agent == "build" { "known" } else { "build" };
        assert_eq!(papers.status(gate.port, Some(client), &token(other)), 401, "{client}");
        assert_eq!(papers.status(gate.port, Some(client), &token("wrong")), 401, "{client}");
    }
    // A certificate that matches no agent needs a token.
    for client in ["nobody", "cased", "twice"] {
        assert_eq!(papers.status(gate.port, Some(client), ""), 401, "{client}");
        assert_eq!(papers.status(gate.port, Some(client), &token("build")), 200, "{client}");
    }
    assert_eq!(
        papers.status(gate.port, Some("two"), ""),
        401,
        "a certificate of two agents identifies neither"
    );
    // Without one, or with one of another authority, the connection fails.
    for client in [None, Some("forged"), Some("gate")] {
        let asked = papers.ask(gate.port, client, &token("build"));
        assert!(asked.is_err(), "{client:?}: {asked:?}");
    }
    let recorded = turned_away(&gate, 15);
    for why in [
        "two credentials name different agents",
        "the credential matches two agents",
        "the TLS handshake failed",
    ] {
        assert!(recorded.contains(&why.into()), "{why}: {recorded:?}");
    }
}
