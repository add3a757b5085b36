//! Real syslog daemons, with the configurations of `examples/syslog`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::harness::{Gate, eventually, everyone, names, setup};
use super::sinks::{call, is_delivered, lines};
use super::tls::Certificate;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/syslog");

/// A daemon that writes what it receives to `received`.
struct Daemon {
    child: Option<Child>,
    folder: tempfile::TempDir,
    port: u16,
    program: PathBuf,
}

impl Daemon {
    /// `rsyslogd` with a changed configuration.
    fn rsyslog(change: impl Fn(String, &Path) -> String) -> Daemon {
        Daemon::start("rsyslog.conf", "rsyslogd".into(), change)
    }

    fn start(example: &str, program: PathBuf, change: impl Fn(String, &Path) -> String) -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let text = std::fs::read_to_string(Path::new(EXAMPLES).join(example)).unwrap();
        let received = folder.path().join("received");
        let text = text.replace("6514", &port.to_string());
        let text = text.replace("/var/log/toolward/audit.jsonl", received.to_str().unwrap());
        std::fs::write(folder.path().join("conf"), change(text, folder.path())).unwrap();
        let mut daemon = Daemon { child: None, folder, port, program };
        daemon.run();
        daemon
    }

    fn run(&mut self) {
        let path = |name: &str| self.folder.path().join(name);
        let mut command = Command::new(&self.program);
        match self.program.ends_with("rsyslogd") {
            true => command.arg("-n").arg("-f").arg(path("conf")).arg("-i").arg(path("pid")),
            false => {
                let root = self.program.parent().unwrap().parent().unwrap();
                let library = root.join("lib/syslog-ng");
                let modules = std::fs::read_dir(&library).unwrap().flatten();
                let modules = modules.map(|entry| entry.path()).find(|path| path.is_dir()).unwrap();
                command.env("LD_LIBRARY_PATH", &library);
                command.arg("--module-path").arg(modules);
                command.args(["-F", "--no-caps", "-f"]).arg(path("conf"));
                command.arg("-R").arg(path("persist")).arg("-p").arg(path("pid"));
                command.arg("-c").arg(path("control"))
            }
        };
        let log = std::fs::File::create(path("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn();
        let missing = "is needed; ./test installs it";
        let child = child.unwrap_or_else(|_| panic!("{} {missing}", self.program.display()));
        self.child = Some(child);
    }

    fn listens(&self) {
        eventually("the daemon listens", || {
            std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    fn signal(&self, name: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn received(&self) -> Vec<String> {
        lines(&self.folder.path().join("received"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

fn gate(address: &str) -> Gate {
    gate_with(json!({"syslog": address}))
}

fn gate_with(sink: serde_json::Value) -> Gate {
    let audit = json!({"dir": "audit", "sinks": [sink]});
    setup().agents(everyone()).set("audit", audit).web("s", "modern", names(&["a"])).start()
}

#[test]
fn rsyslog_gets_every_record_byte_for_byte() {
    let daemon = Daemon::rsyslog(|text, _| text);
    daemon.listens();
    let gate = gate(&format!("tcp://127.0.0.1:{}", daemon.port));
    call(&gate, 30);
    is_delivered(&gate, || daemon.received());
}

#[test]
fn a_daemon_that_hangs_costs_no_call_and_misses_no_record() {
    let daemon = Daemon::rsyslog(|text, _| text);
    daemon.listens();
    let gate = gate(&format!("tcp://127.0.0.1:{}", daemon.port));
    call(&gate, 5);
    is_delivered(&gate, || daemon.received());
    daemon.signal("-STOP");
    // More than the buffers of a connection hold.
    call(&gate, 400);
    daemon.signal("-CONT");
    is_delivered(&gate, || daemon.received());
}

#[test]
fn a_daemon_that_is_killed_gets_the_rest_when_it_is_back() {
    let mut daemon = Daemon::rsyslog(|text, _| text);
    daemon.listens();
    let gate = gate(&format!("tcp://127.0.0.1:{}", daemon.port));
    for _ in 0..3 {
        call(&gate, 20);
        daemon.kill();
        call(&gate, 20);
        daemon.run();
    }
    is_delivered(&gate, || daemon.received());
}

#[test]
fn a_unix_socket_works_too() {
    let daemon = Daemon::rsyslog(|text, folder| {
        let input = text.find("input(type=").unwrap();
        let socket = folder.join("socket");
        let text = text[..input].replace("imtcp", "imuxsock\" SysSock.Use=\"off");
        format!(
            "{text}input(type=\"imuxsock\" socket=\"{}\" ruleset=\"toolward\" useSpecialParser=\"off\")\n",
            socket.display()
        )
    });
    let socket = daemon.folder.path().join("socket");
    eventually("the socket exists", || socket.exists());
    let gate = gate(&format!("unix:{}", socket.display()));
    call(&gate, 30);
    is_delivered(&gate, || daemon.received());
}

#[test]
fn syslog_ng_gets_every_record_over_tls() {
    let Some(peers) = std::env::var_os("TOOLWARD_PEERS") else {
        eprintln!("skipped: ./test installs syslog-ng, and sets TOOLWARD_PEERS");
        return;
    };
    let program = PathBuf::from(peers).join("syslog-ng/usr/sbin/syslog-ng");
    let certificate = Certificate::new();
    let daemon = Daemon::start("syslog-ng.conf", program, |text, _| {
        text.replace("/etc/syslog-ng/toolward.pem", &certificate.path())
            .replace("/etc/syslog-ng/toolward.key", &certificate.key())
    });
    daemon.listens();
    let address = format!("tls://localhost:{}", daemon.port);
    let gate = gate_with(json!({"syslog": address, "tls": {"ca": certificate.path()}}));
    call(&gate, 30);
    is_delivered(&gate, || daemon.received());
}

#[test]
fn a_certificate_that_is_not_trusted_gets_nothing() {
    let certificate = Certificate::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let front = super::tls::Front::start(&certificate, listener.local_addr().unwrap().port());
    let address = front.url("").replace("https://", "tls://");
    let gate = gate(address.trim_end_matches('/'));
    call(&gate, 3);
    eventually("the sink reports it", || {
        gate.said.lock().unwrap().contains("the sink `syslog` cannot deliver records")
    });
    listener.set_nonblocking(true).unwrap();
    let reached = listener.accept();
    assert!(reached.is_err(), "{reached:?}");
}
