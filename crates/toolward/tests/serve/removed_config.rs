//! A configuration that was found rather than named, and is removed while the gateway runs.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::json;

/// Killed when the test ends, also by a panic.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_file_that_was_found_and_is_gone_is_named_first() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("toolward.yaml");
    let config = json!({
        "listen": "127.0.0.1:0",
        "admin": "off",
        "state": folder.path().join("state"),
        "agents": {"a": {"tokens": ["${TOKEN}"], "allow": {"servers": ["*"]}}},
        "servers": {"s": {"command": "true"}},
    });
    std::fs::write(&file, config.to_string()).unwrap();
    // The file that would be found instead has an error of its own.
    let other = folder.path().join(".config/toolward");
    std::fs::create_dir_all(&other).unwrap();
    for instead in [None, Some("agnets: {}"), Some("listen: 127.0.0.1:1")] {
        if let Some(text) = instead {
            std::fs::write(other.join("toolward.yaml"), text).unwrap();
        }
        std::fs::write(&file, config.to_string()).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_toolward"))
            .arg("serve")
            .current_dir(folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", folder.path())
            .env("TOKEN", "token-a-for-this-test")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let _child = Ended(child);
        assert!(said.any(|line| line.contains("listening on http")));
        std::fs::remove_file(&file).unwrap();
        let refused = said.find(|line| line.contains("was not reloaded")).unwrap();
        assert!(refused.contains(" ERROR reload: "), "{refused}");
        assert_eq!(said.next().unwrap(), "    error: the file toolward.yaml is missing");
        std::fs::write(&file, config.to_string().replace("\"s\"", "\"t\"")).unwrap();
        assert!(said.any(|line| line.contains("policy loaded")), "it is there again");
    }
}
