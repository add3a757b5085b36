//! nginx in front of the gateways.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::harness::eventually;

const NGINX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/nginx/toolward.conf");

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// nginx with the file of `deploy`.
pub struct Nginx {
    child: Child,
    pub port: u16,
    _folder: tempfile::TempDir,
}

impl Nginx {
    pub fn start(gateways: &[u16]) -> Nginx {
        let folder = tempfile::tempdir().unwrap();
        let (path, port) = (folder.path(), free_port());
        std::fs::create_dir(path.join("toolward")).unwrap();
        let upstream: String = gateways
            .iter()
            .map(|port| format!("server 127.0.0.1:{port} max_fails=1 fail_timeout=1s;\n"))
            .collect();
        std::fs::write(path.join("toolward/upstream.conf"), upstream).unwrap();
        std::fs::write(path.join("toolward/listen.conf"), format!("listen 127.0.0.1:{port};\n"))
            .unwrap();
        std::fs::copy(NGINX, path.join("toolward.conf")).unwrap();
        let places: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {}/{kind};\n", path.display()))
            .concat();
        let main = format!(
            "daemon off; master_process off; pid {0}/pid; error_log {0}/error.log;\n\
             events {{ worker_connections 512; }}\n\
             http {{ access_log off;\n{places} include toolward.conf; }}\n",
            path.display()
        );
        std::fs::write(path.join("nginx.conf"), main).unwrap();
        let mut command = Command::new(program("nginx"));
        command.arg("-c").arg(path.join("nginx.conf")).arg("-p").arg(path);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let nginx = Nginx { child, port, _folder: folder };
        eventually("nginx listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Debian has it where only root looks.
fn program(name: &str) -> PathBuf {
    let place = Path::new("/usr/sbin").join(name);
    if place.exists() { place } else { name.into() }
}
