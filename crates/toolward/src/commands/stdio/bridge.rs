//! `toolward stdio --connect`: a stdio client of a central gateway.

use toolward_config::sanitize;
use toolward_gateway::downstream::{bridge, stdio_pipes};
use toolward_gateway::http_client::Address;

use super::{TOKEN_VARIABLE, tell_first_request};
use crate::exit::{self, Failure};
use crate::gateway::terminated;

pub(super) fn run(url: &str, request_bytes: u64) -> Result<u8, Failure> {
    let (address, token) = match target(url) {
        Ok(target) => target,
        Err(failure) => {
            tell_first_request(&failure);
            return Err(failure);
        }
    };
    let request_bytes = usize::try_from(request_bytes).unwrap_or(usize::MAX);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let ends = (stdio_pipes::input(), stdio_pipes::output());
        tokio::select! {
            () = bridge::serve(address, token, request_bytes, ends) => {}
            _ = terminated() => {}
        }
    });
    // Reading standard input cannot always be interrupted.
    runtime.shutdown_background();
    Ok(exit::OK)
}

/// The gateway's address, and the token for it.
fn target(url: &str) -> Result<(Address, Option<String>), Failure> {
    let wrong = |why: &str| {
        let url = sanitize(url.split(['?', '#']).next().unwrap_or_default()).into_owned();
        Failure::invalid(format!("error: `{url}`: {why}"))
    };
    let address = Address::parse(url).map_err(|why| wrong(&why))?;
    let token = match std::env::var(TOKEN_VARIABLE) {
        Ok(token) if token.is_empty() || token.contains(char::is_control) => {
            let why = "the token in TOOLWARD_TOKEN is empty or has control characters";
            return Err(Failure::invalid(format!("error: {why}")));
        }
        Ok(token) => Some(token),
        Err(std::env::VarError::NotPresent) => None,
        Err(std::env::VarError::NotUnicode(_)) => {
            return Err(Failure::invalid("error: TOOLWARD_TOKEN is not valid UTF-8"));
        }
    };
    if token.is_some() && !address.tls && !address.is_loopback() {
        return Err(wrong("the token would be sent over `http` in the clear\n  help: use `https`"));
    }
    Ok((address, token))
}
