//! How an entry is changed so that its client starts Toolward, and which server of the gateway it becomes.
//!
//! Known secrets stay in the client's file. The environment of a program is not changed: Toolward gets it from the
//! client and passes it on. Values that may be secrets or contain the client's references (`${input:token}`),
//! in headers, URLs and arguments, move into the environment of the same entry, where every client that
//! replaces references replaces them too. The gateway's file refers to them by name.

use std::path::Path;

use serde_json::{Map, Value, json};
use toolward_config::hint_sets::{self, HintSet};
use toolward_config::splice::Edit;
use toolward_gateway::audit::redact::Redact;

use crate::clients::entry::{Entry, HeaderSource, Program, Remote};
use crate::clients::gateway_file::check_server;
use crate::clients::table::Fields;

/// A server of the gateway, and the values that its client's entry has to provide.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WrappedServer {
    /// The server as `toolward.yaml` has it.
    pub(crate) definition: Value,
    /// Variables that move into the entry's environment.
    pub(crate) variables: Vec<(String, String)>,
    /// Variables of the client's environment that Toolward needs, by name.
    pub(crate) passed_on: Vec<String>,
    /// Reviewed hints for its tools, which the definition selects.
    pub(crate) hints: Option<&'static HintSet>,
}

impl WrappedServer {
    /// Whether a person has to log in to it.
    pub(crate) fn needs_login(&self) -> bool {
        self.definition.get("login").is_some()
    }

    /// The server of an entry. `base`: the directory in which the client starts the program, if that is known.
    pub(crate) fn of(entry: &Entry, base: Option<&Path>) -> Result<WrappedServer, String> {
        let server = match entry {
            Entry::Program(program) => of_program(program, base)?,
            Entry::Remote(remote) => of_remote(remote),
            Entry::Wrapped { .. } => return Err("it is wrapped already".into()),
            Entry::Other(why) => return Err((*why).into()),
        };
        check_server(&server.definition)?;
        Ok(server)
    }
}

fn of_program(program: &Program, base: Option<&Path>) -> Result<WrappedServer, &'static str> {
    if has_reference(&program.command) {
        return Err("its command has references, which only its client can replace");
    }
    let command = match (program.command.contains('/'), base) {
        // Relative paths of the gateway's file are relative to that file.
        (true, Some(base)) => base.join(&program.command).to_string_lossy().into_owned(),
        (true, None)
            if !Path::new(&program.command).is_absolute() && !is_windows_path(&program.command) =>
        {
            return Err("its command is a relative path");
        }
        _ => program.command.clone(),
    };
    let mut variables = Vec::new();
    let mut args = Vec::new();
    for (at, (arg, is_secret)) in program.args.iter().zip(secrets(program)).enumerate() {
        if is_secret || has_reference(arg) {
            let name = format!("TOOLWARD_ARG_{}", at + 1);
            args.push(json!(format!("${{{name}}}")));
            variables.push((name, arg.clone()));
        } else {
            args.push(json!(arg));
        }
    }
    let mut definition = json!({"command": command, "args": args, "inherit_env": true});
    // Arguments that moved are not the package.
    let written: Vec<&str> = args.iter().filter_map(Value::as_str).collect();
    let hints = hint_sets::matching(&command, &written);
    if hints.is_some() {
        definition["hints_from"] = "builtin".into();
    }
    Ok(WrappedServer { definition, variables, passed_on: Vec::new(), hints })
}

fn is_windows_path(path: &str) -> bool {
    path.as_bytes().get(1) == Some(&b':')
}

/// Which arguments may be secrets, by the rules of the audit log.
fn secrets(program: &Program) -> Vec<bool> {
    let line: Vec<&str> =
        [&*program.command].into_iter().chain(program.args.iter().map(|arg| &**arg)).collect();
    let redacted = Redact::default().value(json!(line));
    let redacted = redacted.as_array().into_iter().flatten().skip(1);
    program.args.iter().zip(redacted).map(|(arg, shown)| shown != arg).collect()
}

fn of_remote(remote: &Remote) -> WrappedServer {
    let (mut variables, mut passed_on, mut headers) = (Vec::new(), Vec::new(), Map::new());
    let is_private = has_reference(&remote.url) || remote.url.contains(['?', '@', '#']);
    let url = match is_private {
        true => {
            variables.push(("TOOLWARD_URL".to_owned(), remote.url.clone()));
            "${TOOLWARD_URL}"
        }
        false => &remote.url,
    };
    for (at, header) in remote.headers.iter().enumerate() {
        let (name, value) = match header {
            HeaderSource::Written { name, value } => {
                let variable = format!("TOOLWARD_HEADER_{}", at + 1);
                variables.push((variable.clone(), value.clone()));
                (name, format!("${{{variable}}}"))
            }
            HeaderSource::Variable { name, prefix, variable } => {
                passed_on.push(variable.clone());
                (name, format!("{prefix}${{{variable}}}"))
            }
        };
        headers.insert(name.clone(), value.into());
    }
    let mut definition = json!({"url": url});
    if !headers.is_empty() {
        definition["headers"] = headers.into();
    }
    if remote.is_sse {
        definition["transport"] = "sse".into();
    }
    if let Some(login) = &remote.login {
        definition["login"] = json!({});
        if let Some(id) = &login.client_id {
            definition["login"]["client_id"] = id.as_str().into();
        }
    }
    WrappedServer { definition, variables, passed_on, hints: None }
}

/// Whether a finding is about a variable that only a client's entry sets. Each client starts Toolward for one server,
/// with the variables of that server, so none of them has to be set elsewhere.
pub(crate) fn is_set_by_client(finding: &str) -> bool {
    let name =
        finding.strip_prefix("the variable `").and_then(|rest| rest.strip_suffix("` is not set"));
    name.is_some_and(|name| {
        name == "TOOLWARD_URL"
            || ["TOOLWARD_HEADER_", "TOOLWARD_ARG_"].iter().any(|prefix| name.starts_with(prefix))
    })
}

/// Whether a client could replace something in a text: `${x}`, `{env:x}`, `{file:x}`, `%x%`.
fn has_reference(text: &str) -> bool {
    let is_percent = text.split('%').nth(1).is_some_and(|name| {
        text.matches('%').count() >= 2
            && !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    });
    text.contains("${") || text.contains("{env:") || text.contains("{file:") || is_percent
}

/// The edits that make an entry start Toolward. Other fields are not changed.
pub(crate) fn edits(
    entry: &Value,
    fields: &Fields,
    (program, args): (&str, &[String]),
    server: &WrappedServer,
) -> Vec<Edit> {
    let mut edits = Vec::new();
    match fields.is_command_list {
        true => {
            let words: Vec<&str> =
                [program].into_iter().chain(args.iter().map(|arg| &**arg)).collect();
            edits.push(Edit::set(fields.command, json!(words)));
        }
        false => {
            edits.push(Edit::set(fields.command, json!(program)));
            edits.push(Edit::set("args", json!(args)));
        }
    }
    let is_remote = fields.urls.iter().any(|name| entry.get(name).is_some());
    let has_type = entry.get("type").is_some();
    match fields.program_type {
        Some(kind) if is_remote && (has_type || kind == "local") => {
            edits.push(Edit::set("type", json!(kind)));
        }
        _ => {}
    }
    let env = entry[fields.env].is_object();
    match (env, server.variables.as_slice()) {
        (_, []) => {}
        (true, variables) => {
            edits.extend(variables.iter().map(|(name, value)| {
                Edit::Set(vec![fields.env.into(), name.clone()], json!(value))
            }))
        }
        (false, variables) => {
            let all: Map<String, Value> =
                variables.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            edits.push(Edit::set(fields.env, all.into()));
        }
    }
    if !server.passed_on.is_empty() {
        let known = entry["env_vars"].as_array().cloned().unwrap_or_default();
        let new =
            server.passed_on.iter().map(|name| json!(name)).filter(|name| !known.contains(name));
        let all: Vec<Value> = known.iter().cloned().chain(new).collect();
        edits.push(Edit::set("env_vars", json!(all)));
    }
    if is_remote {
        let gone = fields.urls.iter().chain([
            &fields.headers,
            &"bearer_token_env_var",
            &"env_http_headers",
            &"oauth",
        ]);
        let gone = gone.filter(|name| entry.get(**name).is_some());
        edits.extend(gone.map(|name| Edit::Remove((*name).into())));
    }
    edits
}
