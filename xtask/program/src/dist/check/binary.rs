//! The archive: its program needs nothing but an old glibc, and resolves host names in a directory that has
//! only that.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use toolward_testkit::echo::{self, Server};

use crate::dist::{Dist, Result, binary, image, read, remove, run};

use super::gateway::Gateway;
use super::installed::{Installed, expect};
use super::root::Root;

/// The glibc that the platform tag of the wheel promises.
const GLIBC: (u32, u32) = (2, 17);
const HOST: &str = "server.test";

pub(super) fn check(dist: &Dist) -> Result<()> {
    let folder = dist.stage.join("check-binary");
    remove(&folder)?;
    let unpacked = folder.join("archive");
    crate::dist::create(&unpacked)?;
    let name = binary::archive_name(&dist.version);
    let archive = dist.out.join(format!("{name}.tar.gz"));
    run(Command::new("tar")
        .arg("--extract")
        .arg("--file")
        .arg(archive)
        .arg("--directory")
        .arg(&unpacked))?;
    let program = unpacked.join(name).join("toolward");
    old_glibc(&program)?;

    // Only the program, glibc, and where the name server is.
    let path = folder.join("root");
    let root = Root::bare(&path);
    root.add(&program, "toolward")?;
    let debian = image::debian(dist)?;
    let libraries = "lib/x86_64-linux-gnu";
    for library in image::needed(&program, &debian)? {
        let library = format!("{libraries}/{library}");
        root.add(&debian.join(&library), &library)?;
    }
    let loader = "ld-linux-x86-64.so.2";
    root.add(&debian.join(libraries).join(loader), &format!("lib64/{loader}"))?;
    resolves_names(&root, &folder)?;

    let command = || Command::new(&program);
    let path = program.display().to_string();
    Installed { command: &command, program: &path, version: &dist.version, folder: &folder }.works()
}

/// The program of a file system calls a tool of a server that it knows by its host name.
pub(super) fn resolves_names(root: &Root, folder: &Path) -> Result<()> {
    root.write("etc/resolv.conf", "nameserver 127.0.0.1\n")?;
    root.directory("state", 1000)?;
    let asked = name_server()?;
    let server = Server::new(&echo::tools(1, 0)).and_then(echo::http::start);
    let server = server.map_err(|error| format!("the echo server: {error}"))?;
    let url = server.url().replace("127.0.0.1", HOST);
    root.write(
        "toolward.yaml",
        &format!(
            "listen: 127.0.0.1:7410\nstate: /state\naudit: {{ dir: /state/audit }}\nadmin: off\n\
             servers: {{ echo: {{ url: {url} }} }}\nagents:\n  default: {{ allow: {{ servers: [\"*\"] }} }}\n\
             defaults: {{ deny_on_missing_agent: false }}\n"
        ),
    )?;
    let mut serve = root.command("1000:1000", "/toolward");
    let gateway = Gateway::start(serve.args(["serve", "-c", "/toolward.yaml"]), folder)?;
    gateway.call("echo__echo")?;
    gateway.end()?;
    let asked = asked.load(Ordering::Relaxed);
    expect(asked > 0, || format!("the name server was never asked for {HOST}"))
}

/// No symbol is newer than the oldest glibc that packages promise to work with.
fn old_glibc(program: &Path) -> Result<()> {
    let symbols = read(Command::new("objdump").arg("--dynamic-syms").arg(program))?;
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let version =
            rest.split(|letter: char| !letter.is_ascii_digit() && letter != '.').next()?;
        let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
        Some((numbers.next()?, numbers.next()?))
    });
    let newest = versions.max().ok_or("the program has no symbols of glibc")?;
    expect(newest <= GLIBC, || format!("the program needs glibc {}.{}", newest.0, newest.1))
}

/// A name server that knows one name, started once; returns a counter of queries for it.
fn name_server() -> Result<Arc<AtomicUsize>> {
    static SHARED: Mutex<Option<Arc<AtomicUsize>>> = Mutex::new(None);
    let mut shared = SHARED.lock().map_err(|_| "the name server ended")?;
    if let Some(asked) = &*shared {
        asked.store(0, Ordering::Relaxed);
        return Ok(asked.clone());
    }
    let socket = UdpSocket::bind("127.0.0.1:53").map_err(|error| format!("port 53: {error}"))?;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    *shared = Some(asked.clone());
    std::thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut packet) {
            if let Some(answer) = packet.get(..length).and_then(answer) {
                count.fetch_add(1, Ordering::Relaxed);
                let _ = socket.send_to(&answer, client);
            }
        }
    });
    Ok(asked)
}

/// The response to a query: the loopback address for `A` queries of the name, no address for others.
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    for label in HOST.split('.') {
        name.push(u8::try_from(label.len()).ok()?);
        name.extend_from_slice(label.as_bytes());
    }
    name.push(0);
    let question = query.get(12..12 + name.len() + 4)?;
    if !question.starts_with(&name) {
        return None;
    }
    let is_address = question.ends_with(&[0, 1, 0, 1]);
    let mut answer = query.get(..2)?.to_vec();
    answer.extend([0x84, 0, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    answer.extend_from_slice(question);
    if is_address {
        // A pointer to the name in the question, type A, class IN, a lifetime of 60 s, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(Ipv4Addr::LOCALHOST.octets());
    }
    Some(answer)
}
