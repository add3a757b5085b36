//! `toolward init`: puts the gateway in front of the servers of MCP clients.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use toolward_config::{CONFIG_VARIABLE, USER_CONFIGURATION, sanitize, suggest};

use crate::cli::InitArgs;
use crate::clients::locate::Machine;
use crate::clients::plan::{FilePlan, Outcome, Plan, Request, label};
use crate::clients::survey::Wanted;
use crate::clients::table::{CLIENTS, client};
use crate::exit::{self, Failure};
use crate::render::count;

/// Running Claude Code processes write their file from memory, so it is checked again after this time.
const SECOND_LOOK: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &InitArgs) -> Result<u8, Failure> {
    check_clients(&args.client)?;
    let machine = machine(args.project.as_deref())?;
    let paths = args.path.iter().map(|given| named_path(given)).collect::<Result<_, _>>()?;
    let program = std::env::current_exe().map_err(|error| {
        Failure::usage(format!("error: the path of this program cannot be determined: {error}"))
    })?;
    let config = config_path(args.config.as_deref(), &machine)?;
    let request = Request {
        wanted: Wanted { clients: args.client.clone(), paths },
        program,
        is_default_config: is_default(&config, &machine),
        config,
    };
    let failed = |why: String| Failure::invalid(format!("error: {}", shown(&why)));
    let mut plan = Plan::new(&machine, &request).map_err(failed)?;
    // Found before anything is changed.
    plan.gateway.changed().map_err(|why| {
        failed(format!("the configuration would not be valid, so nothing is changed:\n{why}"))
    })?;
    let mut out = anstream::stdout().lock();
    let may_apply = match (plan.changes(), args.dry_run, args.yes) {
        (0, ..) | (_, true, _) => false,
        (_, _, true) => true,
        _ if std::io::stdin().is_terminal() && !args.output.json => {
            show(&mut out, &plan, &machine, true)?;
            ask("Make these changes?")?
        }
        _ => {
            report(&mut out, &plan, &machine, args)?;
            writeln!(
                anstream::stderr(),
                "nothing was changed: there is no terminal to ask on; use --yes"
            )?;
            return Ok(exit::USAGE);
        }
    };
    if !may_apply {
        if args.dry_run || plan.changes() == 0 {
            report(&mut out, &plan, &machine, args)?;
        }
        return Ok(exit::OK);
    }
    plan.apply().map_err(failed)?;
    if plan.files.iter().any(|file| file.client.id == "claude-code" && file.changes() > 0) {
        std::thread::sleep(SECOND_LOOK);
    }
    let reverted: Vec<String> =
        plan.reverted().iter().map(|file| home_path(&file.file, &machine)).collect();
    match args.output.json {
        true => writeln!(out, "{:#}", to_json(&plan))?,
        false => done(&mut out, &plan, &machine)?,
    }
    for file in &reverted {
        let file = sanitize(file);
        writeln!(
            anstream::stderr(),
            "warning: {file} was overwritten by its client, without the change\n  \
             help: quit the client, and run `toolward init` again"
        )?;
    }
    let is_whole = reverted.is_empty() && plan.files.iter().all(|file| file.problem.is_none());
    Ok(if is_whole { exit::OK } else { exit::NO })
}

fn report(
    out: &mut dyn Write,
    plan: &Plan,
    machine: &Machine,
    args: &InitArgs,
) -> std::io::Result<()> {
    match args.output.json {
        true => writeln!(out, "{:#}", to_json(plan)),
        false => show(out, plan, machine, true),
    }
}

/// Files and entries, with the lines that change.
fn show(out: &mut dyn Write, plan: &Plan, machine: &Machine, diff: bool) -> std::io::Result<()> {
    if plan.files.is_empty() {
        return writeln!(
            out,
            "no configuration of an MCP client was found\n  help: give one with --path CLIENT=FILE"
        );
    }
    for file in &plan.files {
        writeln!(out, "{}  {}", file.client.name, sanitize(&home_path(&file.file, machine)))?;
        if let Some(problem) = &file.problem {
            writeln!(out, "  not changed: {}", shown(problem))?;
        }
        if file.entries.is_empty() && file.problem.is_none() {
            writeln!(out, "  no servers")?;
        }
        for entry in &file.entries {
            let name = label(&entry.name, entry.project.as_deref());
            let name = sanitize(&name);
            match &entry.outcome {
                Outcome::Wrap { server, hints, login, .. } => {
                    let login = if *login { ", which needs a login once" } else { "" };
                    let hints = hints.map_or_else(String::new, |set| {
                        format!(", with reviewed hints for {}", count(set.tools.len(), "tool"))
                    });
                    writeln!(out, "  {name}: wrapped as the server `{server}`{hints}{login}")?
                }
                Outcome::Wrapped => writeln!(out, "  {name}: wrapped already")?,
                Outcome::Left(why) => writeln!(out, "  {name}: not changed: {}", sanitize(why))?,
            }
            if let (Outcome::Wrap { diff: lines, .. }, true) = (&entry.outcome, diff) {
                for line in lines {
                    writeln!(out, "    {}", sanitize(line))?;
                }
            }
        }
    }
    let what = if plan.gateway.is_new() { "is created" } else { "is extended" };
    if plan.changes() > 0 {
        writeln!(out, "\n{} {what}", sanitize(&home_path(&plan.gateway.path, machine)))?;
    }
    Ok(())
}

fn done(out: &mut dyn Write, plan: &Plan, machine: &Machine) -> std::io::Result<()> {
    show(out, plan, machine, false)?;
    let changed: Vec<&FilePlan> = plan.files.iter().filter(|file| file.changes() > 0).collect();
    writeln!(
        out,
        "\n{} wrapped in {}. For the change to take effect:",
        count(plan.changes(), "server"),
        count(changed.len(), "file")
    )?;
    for file in &changed {
        writeln!(out, "  {}: {}", file.client.name, file.client.restart)?;
    }
    let mut logins: Vec<&str> = Vec::new();
    for entry in changed.iter().flat_map(|file| &file.entries) {
        if let Outcome::Wrap { server, login: true, .. } = &entry.outcome
            && !logins.contains(&&**server)
        {
            logins.push(server);
        }
    }
    if !logins.is_empty() {
        writeln!(
            out,
            "\nThe clients logged in to these servers themselves; now Toolward does. Log in once (if a server needs no \
             login, remove its `login`):"
        )?;
        for server in logins {
            writeln!(out, "  toolward login {}", sanitize(server))?;
        }
    }
    let is_open = changed.iter().all(|file| plan.gateway.denies_nothing(file.client.id));
    let denied = match is_open {
        true => "and nothing is denied yet",
        false => "and the rules that the policy already had apply to these servers too",
    };
    writeln!(
        out,
        "\nEvery call is now in the audit log, {denied}. Next: `toolward tail` shows calls, \
         `toolward doctor` shows what is protected,\nand the policy is in {}. After a few days, `toolward learn --as AGENT` proposes a narrower one.",
        sanitize(&home_path(&plan.gateway.path, machine))
    )
}

fn to_json(plan: &Plan) -> Value {
    let files = plan.files.iter().map(|file| {
        let entries = file.entries.iter().map(|entry| {
            let (state, detail) = match &entry.outcome {
                Outcome::Wrap { server, hints, login, .. } => {
                    let hints = hints.map(|set| set.name);
                    ("wrap", json!({"server": server, "hints": hints, "needs_login": login}))
                }
                Outcome::Wrapped => ("wrapped", json!({})),
                Outcome::Left(why) => ("direct", json!({"reason": why})),
            };
            let mut value = json!({"name": entry.name, "state": state});
            if let Some(project) = &entry.project {
                value["project"] = project.as_str().into();
            }
            if let (Some(value), Some(detail)) = (value.as_object_mut(), detail.as_object()) {
                value.extend(detail.clone());
            }
            value
        });
        json!({
            "client": file.client.id,
            "file": file.file,
            "problem": file.problem,
            "entries": entries.collect::<Vec<_>>(),
        })
    });
    json!({"config": plan.gateway.path, "files": files.collect::<Vec<_>>()})
}

/// Asks a question on the terminal.
pub(crate) fn ask(question: &str) -> Result<bool, Failure> {
    let mut stderr = anstream::stderr();
    write!(stderr, "\n{question} [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Refuses names of clients that do not exist.
pub(crate) fn check_clients(given: &[String]) -> Result<(), Failure> {
    let Some(unknown) = given.iter().find(|id| client(id).is_none()) else { return Ok(()) };
    let names = || CLIENTS.iter().map(|client| client.id);
    let help = match suggest::nearest(unknown, names()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
    };
    let unknown = sanitize(unknown);
    Err(Failure::usage(format!("error: no client is named `{unknown}`\n  help: {help}")))
}

/// This machine, with the files of a project.
pub(crate) fn machine(project: Option<&Path>) -> Result<Machine, Failure> {
    let absolute = |path: &Path| {
        path.canonicalize().map_err(|error| {
            let path = path.display().to_string();
            Failure::usage(format!("error: {}: {error}", sanitize(&path)))
        })
    };
    let project = project.map(absolute).transpose()?;
    Machine::here(project).ok_or_else(|| Failure::usage("error: HOME is not set"))
}

/// The gateway's configuration: the given one, or the user's.
pub(crate) fn config_path(given: Option<&Path>, machine: &Machine) -> Result<PathBuf, Failure> {
    match given {
        None => Ok(machine.home.join(USER_CONFIGURATION)),
        Some(path) => Ok(std::path::absolute(path)?),
    }
}

/// Whether `stdio --server` uses this configuration if none is named.
fn is_default(config: &Path, machine: &Machine) -> bool {
    let named = std::env::var_os(CONFIG_VARIABLE).filter(|file| !file.is_empty());
    named.is_none() && config == machine.home.join(USER_CONFIGURATION)
}

fn named_path(given: &str) -> Result<(String, PathBuf), Failure> {
    let Some((id, file)) = given.split_once('=') else {
        return Err(Failure::usage("error: --path is written CLIENT=FILE"));
    };
    check_clients(&[id.into()])?;
    let path = std::path::absolute(file)?;
    if let Err(error) = path.symlink_metadata() {
        return Err(Failure::usage(format!("error: --path: {}: {error}", sanitize(file))));
    }
    Ok((id.into(), path))
}

/// A path with `~` for the home directory.
pub(crate) fn home_path(path: &Path, machine: &Machine) -> String {
    match path.strip_prefix(&machine.home) {
        Ok(below) => format!("~/{}", below.display()),
        Err(_) => path.display().to_string(),
    }
}

/// A message of several lines, each sanitized for a terminal.
pub(crate) fn shown(text: &str) -> String {
    text.lines().map(|line| sanitize(line).into_owned()).collect::<Vec<_>>().join("\n")
}
