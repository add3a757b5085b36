//! A server on the internet cannot make the gateway contact anything closer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// In these tests, 127.0.0.1 counts as an address of the internet, and 127.0.0.2 as this machine.
fn zones(ip: IpAddr) -> Zone {
    match ip {
        IpAddr::V4(ip) if ip.octets() == [127, 0, 0, 1] => Zone::Public,
        IpAddr::V4(ip) if ip.octets() == [127, 0, 0, 2] => Zone::Local,
        ip => Zone::of(ip),
    }
}

/// Answers every request alike, and counts connections.
async fn server(host: &str, response: impl Fn(u16) -> String) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((host, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (count, response) = (Arc::new(AtomicUsize::new(0)), response(port));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let response = response.clone();
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(response.as_bytes()).await;
            });
        }
    });
    (port, count)
}

fn redirect(to: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
}

fn document(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn a_public_server_cannot_refer_to_this_machine() {
    let network = Network::with_zones(Zone::Public, zones);
    let (local, contacted) = server("127.0.0.2", |_| document("{\"secret\":1}")).await;
    let direct = network.document(&format!("http://127.0.0.2:{local}/x")).await.unwrap_err();
    assert!(direct.contains("must not refer to it"), "{direct}");
    let to = format!("http://127.0.0.2:{local}/x");
    let (public, _) = server("127.0.0.1", move |_| redirect(&to)).await;
    let redirected = network.document(&format!("http://127.0.0.1:{public}/x")).await.unwrap_err();
    assert!(redirected.contains("must not refer to it"), "{redirected}");
    assert_eq!(contacted.load(Ordering::SeqCst), 0);
    // A server on this machine may.
    let own = Network::with_zones(Zone::Local, zones);
    assert!(own.document(&format!("http://127.0.0.2:{local}/x")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_name_is_connected_to_its_checked_addresses_only() {
    // `localhost` has the addresses 127.0.0.1 and ::1; here, only the first is public.
    let network = Network::with_zones(Zone::Public, zones);
    let address = Address::parse("http://localhost:80/").unwrap();
    let checked = network.checked(&address).await.unwrap().unwrap();
    assert!(checked.iter().all(|at| at.ip() == IpAddr::from([127, 0, 0, 1])), "{checked:?}");
    let (port, contacted) = server("127.0.0.1", |_| document("{}")).await;
    // The connection goes to the checked address, whatever the name means by then.
    let address = Address::parse(&format!("http://name.invalid:{port}/")).unwrap();
    let to = [SocketAddr::from(([127, 0, 0, 1], port))];
    let got = fetch::send(&address, Some(&to), None, Request::get(100)).await.unwrap();
    assert_eq!((got.status, contacted.load(Ordering::SeqCst)), (200, 1));
}

#[tokio::test]
async fn redirects_and_sizes_are_bounded() {
    let network = Network::with_zones(Zone::Public, zones);
    let own = |port: u16| redirect(&format!("http://127.0.0.1:{port}/again"));
    let (port, contacted) = server("127.0.0.1", own).await;
    let error = network.document(&format!("http://127.0.0.1:{port}/")).await.unwrap_err();
    assert!(error.contains("redirects"), "{error}");
    assert_eq!(contacted.load(Ordering::SeqCst), MAX_REDIRECTS + 1);
    let big = format!("{{\"x\":\"{}\"}}", "x".repeat(10 << 20));
    let (port, _) = server("127.0.0.1", move |_| document(&big)).await;
    let error = network.document(&format!("http://127.0.0.1:{port}/m?q=1")).await.unwrap_err();
    assert!(error.starts_with(&format!("http://127.0.0.1:{port}/m: ")), "{error}");
    for bad in ["[]", "{", "{\"a\":1,\"a\":2}", ""] {
        let (port, _) = server("127.0.0.1", move |_| document(bad)).await;
        assert!(network.document(&format!("http://127.0.0.1:{port}/")).await.is_err(), "{bad}");
    }
}

#[test]
fn addresses_have_zones() {
    for (ip, zone) in [
        ("8.8.8.8", Zone::Public),
        ("2606:4700::1", Zone::Public),
        ("64:ff9b::8.8.8.8", Zone::Public),
        ("10.1.2.3", Zone::Private),
        ("172.16.0.1", Zone::Private),
        ("192.168.1.1", Zone::Private),
        ("100.64.0.1", Zone::Private),
        ("224.0.0.1", Zone::Private),
        ("255.255.255.255", Zone::Private),
        ("fd00::1", Zone::Private),
        ("64:ff9b::10.0.0.1", Zone::Private),
        ("2002:a00:1::1", Zone::Private),
        ("::ffff:10.0.0.1", Zone::Private),
        ("127.0.0.1", Zone::Local),
        ("127.9.9.9", Zone::Local),
        ("0.0.0.0", Zone::Local),
        ("169.254.169.254", Zone::Local),
        ("::1", Zone::Local),
        ("::", Zone::Local),
        ("::ffff:127.0.0.1", Zone::Local),
        ("::127.0.0.1", Zone::Local),
        ("fe80::1", Zone::Local),
    ] {
        assert_eq!(Zone::of(ip.parse().unwrap()), zone, "{ip}");
    }
}

#[test]
fn secrets_are_sent_over_https_only() {
    assert!(secure("https://id.example/token").is_ok());
    assert!(secure("http://127.0.0.1:9/token").is_ok());
    for bad in
        ["http://id.example/token", "ftp://id.example", "https://a b/", "https://a/\r\nx", "/token"]
    {
        assert!(secure(bad).is_err(), "{bad}");
    }
    assert_eq!(shown("https://a/b?token=1#x"), "https://a/b");
}
