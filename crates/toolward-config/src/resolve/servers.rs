//! Resolves `servers` and `mcpServers`: how each server is reached, and its part of the policy source.

use toolward_policy::source::{ActionKeysSource, ServerSource};

use crate::config::{
    BUILTIN_SERVER, CommandTemplate, Connect, EnvFile, InheritEnv, OAuth, OAuthGrant, PinMode,
    ResultBytes, Secret, Server, ServerPins, ServerTls, Start, Timeout, Transport,
};
use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::sanitize::quoted;
use crate::formats::expose::{ExposeList, exposure};
use crate::formats::rules::strings;
use crate::io::{Directories, program};
use crate::keys::value_syntax::{duration, header_name, in_the_clear, reference_parts, size};
use crate::read::node::{Key, Node};
use crate::read::reader::Reader;
use crate::resolve::guards::rates;
use crate::resolve::process::{variables, warn_of_plain_secret};
use crate::resolve::resources::{roots, schemes};
use crate::resolve::{hints, logins};

/// Headers that the gateway sets itself on requests to servers.
const OWNED: [&str; 10] = [
    "content-length",
    "transfer-encoding",
    "connection",
    "host",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "content-type",
    "accept",
];

/// The servers of a file, in its order; those that MCP clients have disabled are left out.
pub(crate) fn listed<'n, 't>(
    root: &'n Node<'t>,
) -> impl Iterator<Item = (&'n Key<'t>, &'n Node<'t>)> {
    let tables = ["servers", "mcpServers"].into_iter().filter_map(|table| root.get(table));
    tables.flat_map(Node::entries).filter(|(_, server)| !is_disabled(server))
}

fn is_disabled(server: &Node<'_>) -> bool {
    server.get("disabled").and_then(Node::as_bool) == Some(true)
}

/// Reports conflicts between `servers` and `mcpServers`, and disabled servers.
pub(crate) fn check_list(reader: &mut Reader<'_>, root: &Node<'_>) {
    let table = |name: &str| root.as_map().and_then(|map| map.entry(name));
    if let (Some((first, _)), Some((second, _))) = (table("servers"), table("mcpServers")) {
        let other = reader.mark(first.span);
        reader.report(
            second.span,
            Diagnostic::error("`mcpServers` is another name for `servers`, and both are set")
                .related(other, "also set here")
                .help("put all servers under `servers`"),
        );
    }
    for (key, _) in table("mcpServers")
        .into_iter()
        .flat_map(|(_, servers)| servers.entries())
        .filter(|(_, server)| is_disabled(server))
    {
        let message = format!("the server {} is disabled and skipped", quoted(&key.name));
        reader.warning(key.span, message, "remove `disabled` to use it");
    }
}

/// The policy source of a server.
pub(crate) fn source(reader: &mut Reader<'_>, key: &Key<'_>, node: &Node<'_>) -> ServerSource {
    let mut server = ServerSource::new(key.name.as_ref());
    server.expose = node.get("expose").map(|list| exposure(reader, list, &ExposeList::TOOLS));
    server.expose_prompts =
        node.get("expose_prompts").map(|list| exposure(reader, list, &ExposeList::PROMPTS));
    server.hints = hints::hints(reader, node);
    if let Some(trust) = node.get("trust_annotations").and_then(Node::as_bool) {
        server.trust_annotations = trust;
    }
    if let Some(keys) = node.get("action_keys") {
        server.action_keys = match keys.as_map() {
            None => ActionKeysSource::All(strings(keys)),
            Some(by_tool) => ActionKeysSource::ByTool(
                by_tool.iter().map(|(key, list)| (key.name.to_string(), strings(list))).collect(),
            ),
        };
    }
    server
}

/// A server's key becomes part of tool names and of the endpoint's path.
pub(crate) fn check_name(reader: &mut Reader<'_>, key: &Key<'_>, separator: &str) {
    let name = key.name.as_ref();
    let shown = quoted(name);
    let first = separator.chars().next();
    let (message, help) = if name.is_empty() {
        ("a server's name must not be empty".to_owned(), "give it a name".to_owned())
    } else if name == BUILTIN_SERVER {
        (
            format!("the name {shown} is reserved for the built-in server"),
            "choose another name".to_owned(),
        )
    } else if let Some(bad) =
        name.chars().find(|c| *c == '/' || c.is_whitespace() || c.is_control())
    {
        let bad = quoted(&bad.to_string());
        (
            format!("a server's name must not contain {bad}"),
            "use letters, digits, `-`, `.` and `_`".to_owned(),
        )
    } else if name.contains("__") || name.contains(separator) {
        let separator = if name.contains(separator) { separator } else { "__" };
        let help = format!("tools are named SERVER{separator}TOOL, which would be ambiguous");
        (format!("a server's name must not contain {}", quoted(separator)), help)
    } else if name.ends_with('_') || first.is_some_and(|first| name.ends_with(first)) {
        let help = format!("tools are named SERVER{separator}TOOL, which would be ambiguous");
        (
            format!(
                "the server's name {shown} must not end with the first characters of the \
            separator"
            ),
            help,
        )
    } else {
        return;
    };
    reader.error(key.span, message, &help);
}

/// Resolves how a server is reached; `None` if an error was reported.
///
/// `client`: the entry is in `mcpServers`, where references are also replaced in `args`.
pub(crate) fn server(
    reader: &mut Reader<'_>,
    key: &Key<'_>,
    node: &Node<'_>,
    directories: &Directories<'_>,
    client: bool,
) -> Option<Server> {
    let connect = connect(reader, key, node, directories, client)?;
    check_client_keys(reader, node);
    Some(Server {
        name: key.name.to_string(),
        connect,
        start: match node.get("start").and_then(Node::as_str) {
            Some("eager") => Start::Eager,
            _ => Start::Lazy,
        },
        timeout: timeout(reader, node),
        result_bytes: node.get("result_bytes").map(result_bytes).unwrap_or_default(),
        share: node.get("share").and_then(Node::as_bool).unwrap_or(false),
        cache: node.get("cache").and_then(Node::as_bool).unwrap_or(true),
        max_children: node
            .get("max_children")
            .and_then(Node::as_int)
            .and_then(|most| u32::try_from(most).ok())
            .unwrap_or(32),
        description: node.get("description").and_then(Node::as_str).map(str::to_owned),
        schemes: node.get("schemes").map(|list| schemes(reader, list)).unwrap_or_default(),
        roots: node.get("roots").map(|list| roots(reader, list, directories)),
        methods: node.get("methods").map(strings).unwrap_or_default(),
        limits: node.get("limits").map(|node| rates(reader, node, false)).unwrap_or_default(),
        hints: hints::sources(node),
        pins: node.get("pins").map(|node| pins(reader, node)).unwrap_or_default(),
        mark: reader.mark(key.span),
    })
}

/// `pins` of a server. A pointer to the whole definition, or to its name, would disable them.
fn pins(reader: &mut Reader<'_>, node: &Node<'_>) -> ServerPins {
    let mode = node.get("mode").and_then(Node::as_str).and_then(PinMode::parse);
    let ignore = node.get("ignore").map(Node::items).unwrap_or_default();
    for item in ignore {
        let Some(pointer) = item.as_str() else { continue };
        let tildes = pointer.split('~').skip(1);
        let valid =
            pointer.starts_with('/') && tildes.into_iter().all(|t| t.starts_with(['0', '1']));
        if !valid {
            let message = format!("{} is not a JSON Pointer", quoted(pointer));
            reader.error(item.span, message, "write a pointer such as `/description`");
        } else if ["/name", "/uriTemplate"].contains(&pointer) {
            let message =
                format!("{} identifies a definition and cannot be ignored", quoted(pointer));
            reader.error(item.span, message, "remove it");
        }
    }
    let ignore = ignore.iter().filter_map(Node::as_str).map(String::from).collect();
    ServerPins { mode, ignore }
}

fn timeout(reader: &mut Reader<'_>, server: &Node<'_>) -> Timeout {
    let read = |node: &Node<'_>| duration(node.as_str()?).ok();
    let most = server.get("max_timeout").and_then(read);
    let mut timeout = Timeout { most, ..Timeout::default() };
    let Some(node) = server.get("timeout") else { return timeout };
    let mut check = |node: &Node<'_>| {
        let idle = read(node);
        if idle.zip(most).is_some_and(|(idle, most)| idle > most) {
            let help = "a call ends after `max_timeout`, even with progress; increase that";
            reader.error(node.span, "`timeout` is longer than `max_timeout`", help);
        }
        idle
    };
    match node.as_map() {
        None => timeout.otherwise = check(node),
        Some(by_tool) => {
            let each = by_tool.iter();
            let each = each.filter_map(|(key, node)| Some((key.name.to_string(), check(node)?)));
            timeout.by_tool = each.collect();
        }
    }
    timeout
}

fn result_bytes(node: &Node<'_>) -> ResultBytes {
    let read = |node: &Node<'_>| match node.as_int() {
        Some(bytes) => u64::try_from(bytes).ok(),
        None => size(node.as_str()?).ok(),
    };
    match node.as_map() {
        None => ResultBytes { otherwise: read(node), by_tool: Vec::new() },
        Some(by_tool) => {
            let each = by_tool.iter();
            let each = each.filter_map(|(key, node)| Some((key.name.to_string(), read(node)?)));
            ResultBytes { otherwise: None, by_tool: each.collect() }
        }
    }
}

fn connect(
    reader: &mut Reader<'_>,
    key: &Key<'_>,
    node: &Node<'_>,
    directories: &Directories<'_>,
    client: bool,
) -> Option<Connect> {
    let map = node.as_map()?;
    let shown = quoted(&key.name);
    match (map.entry("command"), map.entry("url")) {
        (Some((command, _)), Some((url, _))) => {
            let other = reader.mark(command.span);
            reader.report(
                url.span,
                Diagnostic::error(format!("the server {shown} has both `command` and `url`"))
                    .label("reached over HTTP")
                    .related(other, "started as a program")
                    .help("keep the one that applies"),
            );
            None
        }
        (None, None) => {
            let message = format!("the server {shown} has neither `command` nor `url`");
            reader.error(
                key.span,
                message,
                "add `command` for a program, or `url` for a server over HTTP",
            );
            None
        }
        (Some((_, command)), None) => {
            reader.reject_keys(
                node,
                &[
                    "url",
                    "headers",
                    "headers_for",
                    "oauth",
                    "exchange",
                    "login",
                    "tls",
                    "transport",
                ],
                "a server with `command` is not reached over HTTP",
            );
            Some(Connect::Stdio {
                command: program(command.as_str()?, directories.base),
                command_template: command_template(reader, command, directories, client),
                args: arguments(reader, node, directories, client),
                env: variables(reader, node, directories),
                env_file: node.as_map().and_then(|map| map.entry("envFile")).and_then(
                    |(_, file)| {
                        let mark = reader.mark(file.span);
                        Some(EnvFile { path: directories.path(file.as_str()?), mark })
                    },
                ),
                inherit_env: match node.get("inherit_env") {
                    Some(node) if node.as_bool() == Some(true) => InheritEnv::All,
                    node => InheritEnv::Patterns(node.map(strings).unwrap_or_default()),
                },
                cwd: node.get("cwd").and_then(Node::as_str).map(|path| directories.path(path)),
            })
        }
        (None, Some((_, url))) => {
            reader.reject_keys(
                node,
                &["args", "env", "inherit_env", "cwd", "max_children", "share"],
                "a server with `url` is not started by the gateway",
            );
            let transport =
                match node.get("transport").or_else(|| node.get("type")).and_then(Node::as_str) {
                    Some("sse") => Some(Transport::Sse),
                    Some("streamable" | "streamable-http" | "http") => Some(Transport::Streamable),
                    _ => None,
                };
            let headers = headers(reader, node.get("headers"), directories);
            let token_source = map.entry("exchange").or_else(|| map.entry("oauth"));
            let oauth = token_source
                .and_then(|(key, node)| oauth(reader, (&key.name, node), directories))
                .map(Box::new);
            if let (Some((key, _)), Some(_)) = (map.entry("exchange"), map.entry("oauth")) {
                let help = "keep one of them";
                reader.error(key.span, "both `oauth` and `exchange` set `Authorization`", help);
            }
            if let Some((key, _)) = token_source
                && headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
            {
                let help = "keep one of them; `headers_for` may set another one for an agent";
                let message = format!("both `{}` and `headers` set `Authorization`", key.name);
                reader.error(key.span, message, help);
            }
            let login = map.entry("login");
            if let Some((key, _)) = login {
                logins::check(reader, (map, key.span), url, &headers);
            }
            Some(Connect::Http {
                url: Secret::read(reader, url, directories)?,
                headers,
                headers_for: headers_for(reader, node, directories),
                oauth,
                login: login.map(|(_, node)| Box::new(logins::read(reader, node, directories))),
                tls: map.entry("tls").map(|(_, node)| tls(reader, node, url, directories)),
                transport,
            })
        }
    }
}

/// The references in the command of a client's file. They are not replaced in native files.
fn command_template(
    reader: &mut Reader<'_>,
    command: &Node<'_>,
    directories: &Directories<'_>,
    client: bool,
) -> Option<CommandTemplate> {
    let written = command.as_str().filter(|written| client && written.contains("${"))?;
    if let Err(wrong) = reference_parts(written) {
        let diagnostic = Diagnostic::error(wrong.message).maybe_help(wrong.help);
        reader.report(command.span, diagnostic);
    }
    let text = Secret::read(reader, command, directories)?;
    Some(CommandTemplate { text, base: directories.base.to_owned() })
}

/// The arguments of a program. Other users can read them (`ps`), so secrets belong in `env`; only
/// references that a client would replace are replaced, and those of `toolward init`.
fn arguments(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    directories: &Directories<'_>,
    client: bool,
) -> Vec<Secret> {
    let mut arguments = Vec::new();
    for node in node.get("args").map(Node::items).unwrap_or_default() {
        let Some(text) = node.as_str() else { continue };
        match reference_parts(text) {
            _ if !text.contains("${") => {}
            Ok(_) if client || is_moved(text) => {
                arguments.extend(Secret::read(reader, node, directories));
                continue;
            }
            Err(wrong) if client => {
                let diagnostic = Diagnostic::error(wrong.message).maybe_help(wrong.help);
                reader.report(node.span, diagnostic);
            }
            _ => {
                let help = "references are replaced in `env`, `headers`, `url` and `tokens` only";
                reader.warning(node.span, "references are not replaced in `args`", help);
            }
        }
        arguments.push(Secret::literal(text, reader.mark(node.span)));
    }
    arguments
}

/// An argument that `toolward init` has moved into the environment of the client's entry.
fn is_moved(argument: &str) -> bool {
    let number = argument.strip_prefix("${TOOLWARD_ARG_").and_then(|rest| rest.strip_suffix('}'));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()))
}

/// Checks keys that only clients use: `type` must match the server, approvals are ignored with a warning.
fn check_client_keys(reader: &mut Reader<'_>, node: &Node<'_>) {
    if let Some(kind) = node.get("type") {
        let fits = match kind.as_str() {
            Some("stdio") => node.get("command").is_some(),
            Some(_) => node.get("url").is_some(),
            None => true,
        };
        if !fits {
            reader.error(
                kind.span,
                "`type` does not match the server",
                "`stdio` has a `command`, the others a `url`",
            );
        }
    }
    for key in ["alwaysAllow", "autoApprove"] {
        if let Some((key, _)) = node.as_map().and_then(|map| map.entry(key)) {
            let message = format!("{} is a setting of clients and is ignored", quoted(&key.name));
            reader.warning(
                key.span,
                message,
                "permissions are configured in `agents` or `allowed_tools`",
            );
        }
    }
}

fn headers_for(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    directories: &Directories<'_>,
) -> Vec<(String, Vec<(String, Secret)>)> {
    let agents = node.get("headers_for").into_iter().flat_map(Node::entries);
    agents
        .map(|(agent, node)| (agent.name.to_string(), headers(reader, Some(node), directories)))
        .collect()
}

fn tls(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    url: &Node<'_>,
    directories: &Directories<'_>,
) -> ServerTls {
    if url.as_str().is_some_and(|url| url.to_ascii_lowercase().starts_with("http://")) {
        reader.error(
            node.span,
            "`tls` requires an `https` URL, but `url` is `http`",
            "use `https`",
        );
    }
    tls_files(reader, node, directories)
}

/// The files of a `tls` key towards another system.
pub(super) fn tls_files(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    directories: &Directories<'_>,
) -> ServerTls {
    let path = |key: &str| node.get(key).and_then(Node::as_str).map(|path| directories.path(path));
    let identity = match (path("cert"), path("key")) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => {
            let help = "give both files, or neither";
            reader.error(node.span, "a client certificate needs `cert` and `key`", help);
            None
        }
    };
    ServerTls { ca: path("ca"), identity }
}

fn oauth(
    reader: &mut Reader<'_>,
    (key, node): (&str, &Node<'_>),
    directories: &Directories<'_>,
) -> Option<OAuth> {
    let secret = node.as_map()?.entry("client_secret");
    if let Some((_, value)) = secret
        && value.as_str().is_some_and(|value| !value.contains("${"))
    {
        let diagnostic = Diagnostic::error("`client_secret` is in the file in plain text")
            .help("write a reference such as `${NAME}` or `${file:PATH}`")
            .hide_marked();
        reader.report(value.span, diagnostic);
    }
    if let Some(url) = node.get("token_url").filter(|url| url.as_str().is_some_and(in_the_clear)) {
        reader.error(url.span, "the secret would be sent over `http` in plain text", "use `https`");
    }
    Some(OAuth {
        token_url: Secret::read(reader, node.get("token_url")?, directories)?,
        client_id: Secret::read(reader, node.get("client_id")?, directories)?,
        client_secret: Secret::read(reader, secret?.1, directories)?,
        scope: node.get("scope").and_then(Node::as_str).map(str::to_owned),
        grant: match key {
            "exchange" => OAuthGrant::Exchange {
                audience: node.get("audience").and_then(Node::as_str).map(str::to_owned),
            },
            _ => OAuthGrant::ClientCredentials,
        },
    })
}

pub(super) fn headers(
    reader: &mut Reader<'_>,
    node: Option<&Node<'_>>,
    directories: &Directories<'_>,
) -> Vec<(String, Secret)> {
    let mut headers = Vec::new();
    for (key, value) in node.into_iter().flat_map(Node::entries) {
        if !header_name(&key.name) {
            reader.error(
                key.span,
                format!("{} is not a valid header name", quoted(&key.name)),
                "use letters, digits and `-`",
            );
        } else if OWNED.iter().any(|owned| key.name.eq_ignore_ascii_case(owned)) {
            reader.error(
                key.span,
                format!("the gateway sets {} itself", quoted(&key.name)),
                "remove it: it belongs to the connection or to each message",
            );
        } else if value.as_str().is_some_and(|value| value.chars().any(char::is_control)) {
            reader.error(
                value.span,
                "a header must not contain a line break or control character",
                "remove it",
            );
        }
        warn_of_plain_secret(reader, key, value);
        headers.extend(
            Secret::read(reader, value, directories).map(|value| (key.name.to_string(), value)),
        );
    }
    headers
}
