//! Builds the measured programs in release mode.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::Result;

/// Builds a program of the workspace, with these features; returns its path.
pub(super) fn program(package: &str, name: &str, features: &str) -> Result<PathBuf> {
    build(package, name, &["--release", "--features", features])
}

/// Builds a program with the names of its functions, for counting instructions.
pub(super) fn counted(package: &str, name: &str, default_features: bool) -> Result<PathBuf> {
    let more: &[&str] = if default_features { &[] } else { &["--no-default-features"] };
    build(package, name, &[&["--profile", "counted"], more].concat())
}

fn build(package: &str, name: &str, how: &[&str]) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--package", package, "--bin", name])
        .args(how)
        .args(["--quiet", "--message-format", "json-render-diagnostics"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo cannot be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("`{package}` does not build"));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let this = message["target"]["name"] == name;
        message["executable"].as_str().filter(|_| this).map(PathBuf::from)
    });
    executable.ok_or_else(|| format!("cargo did not say where `{name}` is"))
}
