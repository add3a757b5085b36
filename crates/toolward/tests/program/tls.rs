//! TLS on loopback: a certificate, and a front that ends TLS before a server that speaks none.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// The name of the certificate that no resolver knows, for connections through a proxy.
pub const NAME: &str = "services.example";

/// A self-signed certificate for loopback and for [`NAME`], of one server or of several.
pub struct Certificate(tempfile::TempDir);

impl Certificate {
    pub fn new() -> Arc<Certificate> {
        let made = Certificate(tempfile::tempdir().unwrap());
        let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
                         -subj /CN=localhost -addext basicConstraints=critical,CA:FALSE";
        let names = format!("subjectAltName=DNS:localhost,DNS:{NAME},IP:127.0.0.1");
        let output = Command::new("openssl")
            .args(arguments.split_whitespace())
            .args(["-addext", &names, "-keyout", &made.key(), "-out", &made.path()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Arc::new(made)
    }

    /// The certificate's file, which is also the CA to trust.
    pub fn path(&self) -> String {
        self.0.path().join("cert.pem").to_str().unwrap().into()
    }

    pub fn key(&self) -> String {
        self.0.path().join("key.pem").to_str().unwrap().into()
    }
}

/// Relays what arrives over TLS to a port in the clear.
const FRONT: &str = r#"
import socket, ssl, sys, threading
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
def relay(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass
def serve(client):
    try:
        client = context.wrap_socket(client, server_side=True)
    except OSError:
        return
    server = socket.create_connection(("127.0.0.1", int(sys.argv[3])))
    threading.Thread(target=relay, args=(server, client), daemon=True).start()
    relay(client, server)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

/// A running front.
pub struct Front {
    child: Child,
    pub port: u16,
}

impl Front {
    pub fn start(certificate: &Certificate, port: u16) -> Front {
        let (path, key) = (certificate.path(), certificate.key());
        let mut child = Command::new("python3")
            .args(["-c", FRONT, &path, &key, &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Front { child, port: line.trim().parse().unwrap() }
    }

    /// An address that only a proxy can reach.
    pub fn url(&self, path: &str) -> String {
        format!("https://{NAME}:{}{path}", self.port)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
