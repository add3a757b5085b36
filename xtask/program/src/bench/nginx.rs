//! nginx, as a plain reverse proxy with upstream keep-alive, or with one answer from a file.

use std::fmt::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Bench, Result};
use crate::process::{Process, free_port};

/// Finds nginx, or installs it if possible.
pub(super) fn find() -> Result<PathBuf> {
    let known = || {
        ["nginx", "/usr/sbin/nginx"].into_iter().map(PathBuf::from).find(|program| {
            let mut command = Command::new(program);
            command.arg("-v").stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        })
    };
    if let Some(program) = known() {
        return Ok(program);
    }
    if !rustix::process::geteuid().is_root() {
        return Err("it is not installed (Debian: `apt-get install nginx`)".into());
    }
    println!("installing nginx with apt-get");
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
        command.args(arguments).status().is_ok_and(|status| status.success())
    };
    let _ = apt(&["update", "-qq"]);
    if !apt(&["install", "-y", "-qq", "--no-install-recommends", "nginx"]) {
        return Err("`apt-get install nginx` failed".into());
    }
    known().ok_or_else(|| "`apt-get install nginx` did not help".into())
}

pub(super) fn version(program: &Path) -> String {
    let output = Command::new(program).arg("-v").output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stderr).trim().to_string());
    said.unwrap_or_default().replace("nginx version: ", "")
}

/// Makes a directory accessible: if the master runs as root, nginx's workers run as another user.
pub(super) fn let_in(folder: &Path) -> Result<()> {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o711))
        .map_err(|error| format!("the working directory: {error}"))
}

/// A running nginx, and its URL.
pub(super) struct Nginx {
    _process: Process,
    pub(super) url: String,
}

/// Starts nginx in front of a server.
pub(super) fn proxy(bench: &Bench, program: &Path, upstream: &str) -> Result<Nginx> {
    let upstream = upstream.trim_start_matches("http://").trim_end_matches("/mcp");
    let front = format!(
        "upstream echo {{ server {upstream}; keepalive 64; keepalive_requests 1000000000; }}"
    );
    let location = "location / {
            proxy_pass http://echo;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
        }";
    start(program, &bench.subfolder("nginx")?, &front, location)
}

/// Starts nginx as a server that answers every request with these bytes.
pub(super) fn file(bench: &Bench, program: &Path, bytes: &[u8]) -> Result<Nginx> {
    let folder = bench.subfolder("nginx")?;
    std::fs::write(folder.join("list.json"), bytes).map_err(|error| format!("nginx: {error}"))?;
    // A static file cannot answer a POST request; the internal redirect turns it into a GET.
    let location = format!(
        "location = /mcp {{ error_page 405 =200 /list.json; return 405; }}
        location = /list.json {{ internal; root {}; open_file_cache max=16; }}",
        folder.display()
    );
    start(program, &folder, "sendfile on;", &location)
}

fn start(program: &Path, folder: &Path, front: &str, location: &str) -> Result<Nginx> {
    let wrong = |error: std::io::Error| format!("nginx cannot be set up: {error}");
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).map_err(wrong)?;
    let port = free_port()?;
    let here = folder.display();
    let mut places = String::new();
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(places, "    {kind}_temp_path {here}/{kind};");
    }
    let text = format!(
        "daemon off;
worker_processes auto;
pid {here}/nginx.pid;
error_log {here}/error.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    default_type application/json;
    keepalive_requests 1000000000;
{places}    {front}
    server {{
        listen 127.0.0.1:{port};
        {location}
    }}
}}
"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, text).map_err(wrong)?;
    let mut command = Command::new(program);
    command.arg("-e").arg(folder.join("error.log")).arg("-p").arg(folder).arg("-c").arg(&file);
    let mut process = Process::start("nginx", &mut command, folder)?;
    process.wait_for(Duration::from_millis(5), || {
        TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())
    })?;
    Ok(Nginx { _process: process, url: format!("http://127.0.0.1:{port}/mcp") })
}
