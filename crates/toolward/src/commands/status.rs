//! `toolward status`: the state of running gateways.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use toolward_config::sanitize;

use crate::audit_log::clock::{Clock, Precision};
use crate::audit_log::row::took;
use crate::cli::{RunningArgs, StatusArgs};
use crate::control_client::{self, Replies};
use crate::exit::{self, Failure};
use crate::render::{RED, YELLOW, count, paint};
use crate::running;

/// Timeout for the status of a gateway.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of hidden resources that are shown.
const MAX_HIDDEN: usize = 20;

pub(crate) fn run(args: &StatusArgs) -> Result<u8, Failure> {
    let states = states(&args.running, true)?;
    let Replies { answers, silent } = control_client::ask(&states, "status", STATUS_TIMEOUT);
    if answers.is_empty() && silent.is_empty() {
        return Err(none(&states));
    }
    say_silent(&silent)?;
    let code = if answers.is_empty() { exit::UNREACHABLE } else { exit::OK };
    let mut out = anstream::stdout();
    if args.output.json {
        let rows: Vec<Value> = answers.into_iter().map(|(_, answer)| answer).collect();
        writeln!(out, "{}", json!(rows))?;
        return Ok(code);
    }
    for (at, (_, answer)) in answers.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        write!(out, "{}", text(answer, &Clock::new(args.utc)))?;
    }
    Ok(code)
}

/// Warns about processes that have a socket and do not respond.
pub(crate) fn say_silent(silent: &[u32]) -> Result<(), Failure> {
    for process in silent {
        let message = format!("warning: process {process} does not respond");
        writeln!(anstream::stderr(), "{}", paint(YELLOW, message))?;
    }
    Ok(())
}

fn text(status: &Value, clock: &Clock) -> String {
    let time =
        |value: &Value| clock.show(&sanitize(value.as_str().unwrap_or("?")), Precision::Full);
    let word = |value: &Value| sanitize(value.as_str().unwrap_or("?")).into_owned();
    let words = |value: &Value| {
        let all = value.as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().map(&word).collect::<Vec<_>>().join(", ")
    };
    let mut text = format!(
        "toolward {}, process {}, up {}\n",
        word(&status["version"]),
        status["process"],
        duration(status["uptime_s"].as_u64().unwrap_or(0))
    );
    if let Some(page) = status["page"].as_str() {
        text += &format!("  admin    {}\n", sanitize(page));
    }
    let layers = &status["policy"]["layers"];
    match layers.as_array().map_or(0, Vec::len) {
        0 => text += &format!("  policy   {}\n", paint(YELLOW, "none: everything is allowed")),
        _ => {
            let version = word(&status["policy"]["version"]);
            text += &format!("  policy   {version}: {}\n", distinct(&status["policy"]));
            let number = |name: &str| status["policy"][name].as_u64().unwrap_or(0);
            text += &format!(
                "  calls    {} decided since {}; {} refused for tools not in the agent's list\n",
                number("decided"),
                time(&status["policy"]["since"]),
                number("refused_unseen")
            );
        }
    }
    let would = &status["policy"]["would"];
    if would.is_object() {
        text += &format!(
            "  shadow   rules would deny {}, ask about {} and allow {} of these calls\n",
            would["deny"], would["ask"], would["allow"]
        );
    }
    if let Some(why) = status["denying"].as_str() {
        let loud = "EVERY CALL IS DENIED, because the configuration was not valid at startup:";
        text += &format!("  mode     {}\n", paint(RED, loud));
        for line in why.lines() {
            text += &format!("    {}\n", sanitize(line));
        }
    }
    if status["draining"] == true {
        let loud = "draining: another process has taken over";
        text += &format!("  mode     {}\n", paint(YELLOW, loud));
    }
    for test in status["failing_tests"].as_array().into_iter().flatten() {
        for (at, line) in test.as_str().unwrap_or("?").lines().enumerate() {
            let label = if at == 0 { "test" } else { "" };
            text += &format!("  {label:<8} {}\n", paint(RED, sanitize(line)));
        }
    }
    if status["allow_all"] == true {
        let loud = "--allow-all: the policy is evaluated and recorded, not enforced";
        text += &format!("  mode     {}\n", paint(RED, loud));
    }
    if status["read_only"] == true {
        text += "  mode     read-only\n";
    }
    let agents = status["agents"].as_array().map_or(0, Vec::len);
    if agents > 0 {
        text += &format!("  agents   {}\n", words(&status["agents"]));
    }
    match status["audit"].as_str() {
        Some("ok") if status["audit_required"] == false => {
            text +=
                "  audit    written; not required: if it cannot be written, calls go unrecorded\n";
        }
        Some("ok") => {}
        Some("unrecorded") => {
            let loud = "cannot be written: CALLS GO UNRECORDED (audit.required: false)";
            text += &format!("  audit    {}\n", paint(RED, loud));
        }
        _ => {
            let loud = "cannot be written: calls are refused";
            text += &format!("  audit    {}\n", paint(RED, loud));
        }
    }
    for sink in status["sinks"].as_array().into_iter().flatten() {
        text += &format!("  sink     {}\n", sink_text(sink));
    }
    for server in status["servers"].as_array().into_iter().flatten() {
        let mut line = format!("  server   {}: {}", word(&server["name"]), word(&server["state"]));
        let revisions = words(&server["revisions"]);
        if !revisions.is_empty() {
            line += &format!(", {revisions}");
        }
        for (member, noun) in [("tools", "tool"), ("prompts", "prompt"), ("resources", "resource")]
        {
            // Most servers have only tools.
            let known = server[member].as_u64().filter(|known| *known > 0 || member == "tools");
            if let Some(known) = known {
                line += &format!(", {}", count(usize::try_from(known).unwrap_or(0), noun));
            }
        }
        match server["pins"]["quarantined"].as_u64() {
            Some(number) if number > 0 => {
                line += &format!(", {}", paint(RED, format!("{number} quarantined")));
            }
            _ => {}
        }
        if let Some(command) = server["login"]["command"].as_str() {
            let help = format!("log in with `{}`", sanitize(command));
            line += &format!(", {}", paint(YELLOW, help));
        }
        if let Some(why) = server["pins"]["refused"].as_str() {
            line += &format!(", {}", paint(RED, format!("refused: {}", sanitize(why))));
        }
        line += &fared(server, &time);
        text += &line;
        text.push('\n');
    }
    for hidden in status["hidden_resources"].as_array().into_iter().flatten().take(MAX_HIDDEN) {
        let (uri, server) = (word(&hidden["uri"]), word(&hidden["server"]));
        let owner = word(&hidden["owner"]);
        text += &format!("  hidden   {uri} of {server}: {owner} lists it too, and comes first\n");
    }
    let reload = &status["reload"];
    let last = &reload["last"];
    match (last.is_object(), last["error"].as_str()) {
        (false, _) => text += "  reload   none yet\n",
        (true, None) => {
            text += &format!("  reload   {} by {}\n", time(&last["time"]), word(&last["by"]));
        }
        (true, Some(why)) => {
            let refused = format!("refused {} by {}:", time(&last["time"]), word(&last["by"]));
            text += &format!("  reload   {}\n", paint(RED, refused));
            for line in why.lines() {
                text += &format!("    {}\n", sanitize(line));
            }
        }
    }
    text
}

/// The layers by file, each with its kinds: `toolward.yaml (agents, allowlist), extra.yaml (agents)`.
fn distinct(policy: &Value) -> String {
    let texts = |name: &str| {
        let all = policy[name].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().map(|one| one.as_str().unwrap_or("?").to_string()).collect::<Vec<_>>()
    };
    let kinds = texts("layer_kinds").into_iter().map(Some).chain(std::iter::repeat(None));
    let mut files: Vec<(String, Vec<String>)> = Vec::new();
    for (name, kind) in texts("layers").into_iter().zip(kinds) {
        match files.iter_mut().find(|(file, _)| *file == name) {
            Some((_, kinds)) => kinds.extend(kind),
            None => files.push((name, kind.into_iter().collect())),
        }
    }
    let shown = files.into_iter().map(|(file, kinds)| match kinds.as_slice() {
        [] => file,
        kinds => format!("{file} ({})", kinds.join(", ")),
    });
    sanitize(&shown.collect::<Vec<_>>().join(", ")).into_owned()
}

/// A sink: `syslog: 1,234 records, up to date`.
fn sink_text(sink: &Value) -> String {
    let name = sanitize(sink["name"].as_str().unwrap_or("?")).into_owned();
    let delivered = sink["delivered"].as_u64().unwrap_or(0);
    let delivered = count(usize::try_from(delivered).unwrap_or(usize::MAX), "record");
    let lag = sink["lag_s"].as_f64().unwrap_or(0.0);
    let behind = match lag < 1.0 {
        true => "up to date".into(),
        false => paint(YELLOW, format!("{lag:.0} s behind")),
    };
    let error = sink["error"].as_str().map(|why| paint(RED, format!(": {}", sanitize(why))));
    format!("{name}: {delivered} delivered, {behind}{}", error.unwrap_or_default())
}

fn calls(number: u64) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), "call")
}

/// The call counts and latency of a server, if it was used.
fn fared(server: &Value, time: &dyn Fn(&Value) -> String) -> String {
    let number = |name: &str| server[name].as_u64().unwrap_or(0);
    let mut text = String::new();
    if number("calls") > 0 {
        text += &format!(", {}", calls(number("calls")));
    }
    if number("errors") > 0 {
        text += &format!(" ({} failed)", number("errors"));
    }
    let recent = &server["last_5_min"];
    if let (Some(p50), Some(p95)) = (recent["p50_us"].as_u64(), recent["p95_us"].as_u64()) {
        text += &format!(", half of them within {}, 95 % within {}", took(p50), took(p95));
    }
    if number("restarts") > 0 {
        text += &format!(", restarted {}×", number("restarts"));
    }
    if let Some(why) = server["last_failure"]["text"].as_str() {
        let time = time(&server["last_failure"]["time"]);
        let why: Vec<_> = why.lines().map(sanitize).collect();
        text += &format!("\n             last failure {time}: {}", why.join("\n               "));
    }
    text
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// The state directories in which to look for gateways: that of the flag, or that of the configuration and
/// those of gateways that run with the same main file. Without a configuration, `everywhere` adds all
/// gateways of this user.
pub(crate) fn states(args: &RunningArgs, everywhere: bool) -> Result<Vec<PathBuf>, Failure> {
    if let Some(state) = &args.state {
        return Ok(vec![state.clone()]);
    }
    let places = running::places(args.config.as_deref());
    let registered = match &places.main {
        Some(main) => running::with_config(main),
        None if everywhere => running::all(),
        None => Vec::new(),
    };
    let mut states: Vec<PathBuf> = Vec::new();
    for state in places.state.into_iter().chain(registered.into_iter().map(|entry| entry.state)) {
        let state = std::path::absolute(&state).unwrap_or(state);
        if !states.contains(&state) {
            states.push(state);
        }
    }
    match states.is_empty() {
        true => {
            Err(Failure::usage("error: HOME is not set; give the state directory: --state DIR"))
        }
        false => Ok(states),
    }
}

pub(crate) fn none(states: &[PathBuf]) -> Failure {
    let states: Vec<String> = states.iter().map(|state| state.display().to_string()).collect();
    Failure::unreachable(format!(
        "error: no gateway of this user can be reached\n  help: looked in {}",
        sanitize(&states.join(", "))
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_an_offset_and_texts_of_several_lines_stay_readable() {
        let status = json!({
            "version": "1", "process": 1, "uptime_s": 5,
            "policy": {"version": "v", "layers": ["p.yaml"], "since": "2026-11-17T14:36:32.454000Z"},
            "failing_tests": ["FAIL a deny s/x\n     got allow: `x` is in the list\u{1b}[2J"],
            "servers": [{"name": "s", "state": "down", "last_failure":
                {"time": "2026-11-17T14:36:32.454000Z", "text": "it ended\nfatal: no key"}}],
            "reload": {"last": {"time": "2026-11-17T14:36:32.454000Z", "by": "files",
                "error": "error: unknown key\n --> p.yaml:1:1"}},
            "audit": "ok",
        });
        let shown = text(&status, &Clock::new(true));
        assert_eq!(shown.matches("2026-11-17T14:36:32.454Z").count(), 3, "{shown}");
        assert!(!shown.contains('\u{240a}') && !shown.contains("\u{1b}[2J"), "{shown}");
        let lines: Vec<&str> = shown.lines().map(str::trim).collect();
        for line in ["fatal: no key", "--> p.yaml:1:1"] {
            assert!(lines.contains(&line), "{line}: {shown}");
        }
        assert!(shown.contains("got allow: `x` is in the list"), "{shown}");
    }
}
