//! Servers behind `https`.

use std::process::Command;

use serde_json::json;

use crate::harness::{Caller, names, setup};

#[test]
fn a_server_on_https_is_reached_where_its_certificate_is_trusted() {
    for era in ["legacy", "modern"] {
        for trusted in [true, false] {
            let setup = setup();
            let (certificate, key) = (setup.path("cert.pem"), setup.path("key.pem"));
            let made = Command::new("openssl")
                .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"])
                .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
                .args(["-addext", "basicConstraints=critical,CA:FALSE"])
                .arg("-keyout")
                .arg(&key)
                .arg("-out")
                .arg(&certificate)
                .output()
                .unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            let certificate = certificate.to_str().unwrap().to_string();
            let tls = [("TLS_CERTIFICATE", &*certificate), ("TLS_KEY", key.to_str().unwrap())];
            let mut setup = setup.web_with("s", era, names(&["t"]), &tls);
            let plain = setup.url("s");
            let secure = plain.replace("http://127.0.0.1", "https://localhost");
            setup = setup
                .with("s", "url", json!(secure))
                .agents(json!({"a": {"allow": {"servers": ["*"]}}}));
            if trusted {
                setup = setup.env("SSL_CERT_FILE", &certificate);
            }
            let gate = setup.start();
            let expected: &[&str] = if trusted { &["s__t"] } else { &[] };
            assert_eq!(gate.agent("a").list(), expected, "{era}, trusted: {trusted}");
        }
    }
}
