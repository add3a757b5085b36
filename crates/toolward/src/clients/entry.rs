//! An entry of a client's file, as the client reads it.

use serde_json::Value;

use crate::clients::table::Fields;

/// The kind of an entry.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Entry {
    /// It starts Toolward, for this server and agent of the gateway's configuration if that is clear.
    Wrapped {
        program: String,
        server: Option<String>,
        agent: Option<String>,
    },
    Program(Program),
    Remote(Remote),
    /// It cannot be wrapped, for this reason.
    Other(&'static str),
}

/// A program that the client starts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Program {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
}

/// A server that the client reaches over HTTP.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Remote {
    pub(crate) url: String,
    pub(crate) headers: Vec<HeaderSource>,
    pub(crate) is_sse: bool,
    /// Its client logs in to it (OAuth), with this client id if one is configured.
    pub(crate) login: Option<Login>,
}

/// The OAuth settings of an entry.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Login {
    pub(crate) client_id: Option<String>,
}

/// The source of a header's value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum HeaderSource {
    /// As written in the file, with the client's references.
    Written { name: String, value: String },
    /// A variable of the client's environment, after a prefix such as `Bearer `.
    Variable { name: String, prefix: &'static str, variable: String },
}

impl Entry {
    pub(crate) fn read(entry: &Value, fields: &Fields) -> Entry {
        if !entry.is_object() {
            return Entry::Other("it is not a mapping");
        }
        if entry["sandboxEnabled"] == true {
            return Entry::Other(
                "its client runs it in a sandbox, in which Toolward would run too",
            );
        }
        if let Some(program) = program(entry, fields) {
            return match program.map(Program::or_wrapped) {
                Ok(Entry::Program(_)) if sets_own_variables(entry, fields) => {
                    Entry::Other(OWN_VARIABLES)
                }
                Ok(entry) => entry,
                Err(why) => Entry::Other(why),
            };
        }
        if sets_own_variables(entry, fields) {
            return Entry::Other(OWN_VARIABLES);
        }
        match fields.urls.iter().find_map(|name| entry[*name].as_str()) {
            Some(url) => remote(entry, fields, url),
            None => Entry::Other("it is built into the client or managed by it"),
        }
    }
}

const OWN_VARIABLES: &str = "its environment has a variable whose name starts with `TOOLWARD_`, which Toolward would use itself";

/// Variables such as `TOOLWARD_ARG_1` would be overwritten, or change which configuration Toolward uses.
fn sets_own_variables(entry: &Value, fields: &Fields) -> bool {
    let mut env = entry[fields.env].as_object().into_iter().flatten();
    env.any(|(name, _)| name.starts_with("TOOLWARD_"))
}

fn program(entry: &Value, fields: &Fields) -> Option<Result<Program, &'static str>> {
    let words = |value: &Value| -> Option<Vec<String>> {
        value.as_array()?.iter().map(|word| word.as_str().map(String::from)).collect()
    };
    if fields.is_command_list {
        let command = entry.get(fields.command)?;
        let Some(mut words) = words(command).filter(|words| !words.is_empty()) else {
            return Some(Err("its command is not a list of strings"));
        };
        let command = words.remove(0);
        return Some(Ok(Program { command, args: words }));
    }
    let command = entry[fields.command].as_str()?.to_owned();
    let args = match entry.get("args") {
        None | Some(Value::Null) => return Some(Ok(one_line(command))),
        Some(args) => words(args),
    };
    Some(args.map(|args| Program { command, args }).ok_or("its `args` are not a list of strings"))
}

/// Some clients accept a whole command line as `command`. A path may contain spaces, a bare name may not.
fn one_line(line: String) -> Program {
    let mut words = line.split_whitespace().map(String::from);
    match words.next() {
        Some(first) if !first.contains(['/', '\\']) && !line.contains(['"', '\'']) => {
            Program { command: first, args: words.collect() }
        }
        _ => Program { command: line, args: Vec::new() },
    }
}

impl Program {
    fn or_wrapped(self) -> Entry {
        let name = self.command.rsplit(['/', '\\']).next().unwrap_or_default();
        let is_own = matches!(name, "toolward" | "toolward.exe");
        let commands = ["stdio", "wrap"];
        if !is_own || !self.args.first().is_some_and(|first| commands.contains(&first.as_str())) {
            return Entry::Program(self);
        }
        let value = |wanted: &str| {
            self.args.windows(2).find_map(|pair| match pair {
                [flag, value] if flag == wanted => Some(value.clone()),
                _ => None,
            })
        };
        let (server, agent) = (value("--server"), value("--agent"));
        Entry::Wrapped { program: self.command, server, agent }
    }
}

fn remote(entry: &Value, fields: &Fields, url: &str) -> Entry {
    let oauth = entry.get("oauth").filter(|oauth| **oauth != Value::Bool(false));
    if ["http_headers_helper", "authProviderType", "env_keys"]
        .iter()
        .any(|key| entry.get(key).is_some())
    {
        return Entry::Other("its client obtains the credentials itself");
    }
    if !url.contains("://") && !url.contains('{') && !url.contains('$') || url.starts_with("unix:")
    {
        return Entry::Other("its URL is not http or https");
    }
    let host = url.split("://").nth(1).unwrap_or_default();
    if host.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')) {
        return Entry::Other("its URL contains a user or a password, which belong in a header");
    }
    let mut headers = Vec::new();
    for (name, value) in entry[fields.headers].as_object().into_iter().flatten() {
        let Some(value) = value.as_str() else { return Entry::Other("a header is not a text") };
        headers.push(HeaderSource::Written { name: name.clone(), value: value.into() });
    }
    if fields.has_env_vars {
        let bearer =
            entry["bearer_token_env_var"].as_str().map(|variable| HeaderSource::Variable {
                name: "Authorization".into(),
                prefix: "Bearer ",
                variable: variable.into(),
            });
        headers.extend(bearer);
        for (name, variable) in entry["env_http_headers"].as_object().into_iter().flatten() {
            let variable = variable.as_str().unwrap_or_default().into();
            headers.push(HeaderSource::Variable { name: name.clone(), prefix: "", variable });
        }
    }
    let is_here = ["127.0.0.1", "localhost", "[::1]"].iter().any(|own| host.starts_with(own));
    // Without headers, the client logs in if the server asks for it.
    let logs_in = oauth.is_some() || headers.is_empty() && !is_here;
    let login = logs_in.then(|| Login { client_id: oauth.and_then(client_id) });
    if login.is_some() && url.contains(['$', '{', '?']) {
        return Entry::Other("its client logs in to it (OAuth), and only the client knows its URL");
    }
    if login.is_some() && has_authorization(&headers) {
        return Entry::Other("its client logs in to it (OAuth), and it also has a header for that");
    }
    let kind = entry["type"].as_str().unwrap_or_default();
    // If the transport is not given, the gateway detects it.
    let is_sse = kind == "sse";
    Entry::Remote(Remote { url: url.into(), headers, is_sse, login })
}

/// The client id of an entry's OAuth settings, without references.
fn client_id(oauth: &Value) -> Option<String> {
    let id = ["clientId", "client_id"].iter().find_map(|name| oauth[*name].as_str());
    id.filter(|id| !id.is_empty() && !id.contains(['$', '{'])).map(String::from)
}

fn has_authorization(headers: &[HeaderSource]) -> bool {
    headers.iter().any(|header| match header {
        HeaderSource::Written { name, .. } | HeaderSource::Variable { name, .. } => {
            name.eq_ignore_ascii_case("authorization")
        }
    })
}
