//! `toolward token`: credentials for agents.

use std::io::Write;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use toolward_config::sanitize;

use crate::cli::{TokenArgs, TokenCommand, TokenNewArgs};
use crate::exit::{self, Failure};

/// Secret scanners find a token by this prefix.
const PREFIX: &str = "tw_";
/// 256 random bits.
const BYTES: usize = 32;

pub(crate) fn run(args: &TokenArgs) -> Result<u8, Failure> {
    match &args.command {
        TokenCommand::New(args) => new(args),
    }
}

fn new(args: &TokenNewArgs) -> Result<u8, Failure> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::usage(format!("error: no random numbers: {error}")))?;
    let token = format!("{PREFIX}{}", hex(&bytes));
    let hash = hex(&Sha256::digest(&token));
    let mut out = anstream::stdout();
    if args.output.json {
        let agent = args.agent.as_deref();
        let answer = json!({"token": token, "hash": format!("sha256:{hash}"), "agent": agent});
        writeln!(out, "{answer}")?;
        return Ok(exit::OK);
    }
    writeln!(out, "{token}\n")?;
    writeln!(out, "It is not stored anywhere. In the configuration:\n")?;
    match &args.agent {
        None => writeln!(out, "tokens: [\"sha256:{hash}\"]")?,
        Some(agent) => {
            writeln!(out, "agents:\n  {}:", sanitize(&key(agent)))?;
            writeln!(out, "    tokens: [\"sha256:{hash}\"]")?;
        }
    }
    Ok(exit::OK)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A name as a YAML key.
fn key(name: &str) -> String {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let word = ["true", "false", "null", "yes", "no", "on", "off"];
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_word = word.contains(&name.to_ascii_lowercase().as_str());
    match starts && !is_word && name.chars().all(plain) {
        true => name.into(),
        false => Value::from(name).to_string(),
    }
}
