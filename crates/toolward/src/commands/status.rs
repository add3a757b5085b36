//! `toolward status`: what the running gateways do.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolward_config::neutral::neutralise;
use toolward_config::{Disk, Loader, Options, ProcessEnv};

use crate::cli::{RunningArgs, StatusArgs};
use crate::control;
use crate::exit::{self, Failure};
use crate::render::{RED, YELLOW, count, paint};

pub(crate) fn run(args: &StatusArgs) -> Result<u8, Failure> {
    let state = state_folder(&args.running)?;
    let answers = control::ask(&state, "status");
    if answers.is_empty() {
        return Err(none(&state));
    }
    let mut out = anstream::stdout();
    if args.output.json {
        let rows: Vec<Value> = answers.into_iter().map(|(_, answer)| answer).collect();
        writeln!(out, "{}", json!(rows))?;
        return Ok(exit::OK);
    }
    for (at, (_, answer)) in answers.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        write!(out, "{}", text(answer))?;
    }
    Ok(exit::OK)
}

fn text(status: &Value) -> String {
    let word = |value: &Value| neutralise(value.as_str().unwrap_or("?")).into_owned();
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
    let layers = &status["policy"]["layers"];
    match layers.as_array().map_or(0, Vec::len) {
        0 => text += &format!("  policy   {}\n", paint(YELLOW, "none: everything is allowed")),
        _ => {
            let version = word(&status["policy"]["version"]);
            text += &format!("  policy   {version}: {}\n", words(layers));
        }
    }
    if status["allow_all"] == true {
        let loud = "--allow-all: the policy is recorded, not enforced";
        text += &format!("  mode     {}\n", paint(RED, loud));
    }
    if status["read_only"] == true {
        text += "  mode     read-only\n";
    }
    let agents = status["agents"].as_array().map_or(0, Vec::len);
    if agents > 0 {
        text += &format!("  agents   {}\n", words(&status["agents"]));
    }
    if status["audit"] != "ok" {
        let loud = "cannot be written: calls are refused";
        text += &format!("  record   {}\n", paint(RED, loud));
    }
    for server in status["servers"].as_array().into_iter().flatten() {
        let mut line = format!("  server   {}: {}", word(&server["name"]), word(&server["state"]));
        let revisions = words(&server["revisions"]);
        if !revisions.is_empty() {
            line += &format!(", {revisions}");
        }
        if let Some(tools) = server["tools"].as_u64() {
            line += &format!(", {}", count(usize::try_from(tools).unwrap_or(0), "tool"));
        }
        text += &line;
        text.push('\n');
    }
    let reload = &status["reload"];
    let last = &reload["last"];
    match (last.is_object(), last["error"].as_str()) {
        (false, _) => text += "  reload   not yet\n",
        (true, None) => {
            text += &format!("  reload   {} by {}\n", word(&last["time"]), word(&last["by"]));
        }
        (true, Some(why)) => {
            let refused = format!("refused {} by {}:", word(&last["time"]), word(&last["by"]));
            text += &format!("  reload   {}\n", paint(RED, refused));
            for line in why.lines() {
                text += &format!("    {}\n", neutralise(line));
            }
        }
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

/// Where the sockets of running gateways are. A configuration that is wrong now was right when they
/// began: then the usual place is looked at.
pub(crate) fn state_folder(args: &RunningArgs) -> Result<PathBuf, Failure> {
    if let Some(state) = &args.state {
        return Ok(state.clone());
    }
    let options = Options { main: args.config.clone(), search: true, ..Options::default() };
    let loaded = Loader { files: Disk, env: ProcessEnv }.load(&options);
    let home = || {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
        home.map(|home| Path::new(&home).join(".local/state/toolward"))
    };
    let state = match loaded {
        Ok(loaded) => loaded.config.state.or_else(home),
        Err(_) => {
            let note = "note: the configuration is not valid; looking for gateways in the usual \
                        place, or say --state DIR";
            let _ = writeln!(anstream::stderr(), "{note}");
            home()
        }
    };
    state.ok_or_else(|| Failure::usage("error: HOME is not set; say where: --state DIR"))
}

pub(crate) fn none(state: &Path) -> Failure {
    let state = state.display().to_string();
    Failure::unreachable(format!(
        "error: no gateway of this user can be reached\n  help: looked in {}",
        neutralise(&state)
    ))
}
