//! Resolves the main file: from the validated tree to typed configuration values.

use crate::config::{
    Arguments, Audit, BUILTIN_SERVER, Config, Durability, LimitsOf, Naming, PinMode, Server, Tls,
};
use crate::formats::rules::deny_on_missing_agent;
use crate::io::Directories;
use crate::keys::value_syntax;
use crate::read::node::{Node, Value};
use crate::read::reader::Reader;
use crate::resolve::approvals;
use crate::resolve::builtin;
use crate::resolve::guards;
use crate::resolve::identities;
use crate::resolve::issuers;
use crate::resolve::observe;
use crate::resolve::replicas;
use crate::resolve::servers;
use crate::resolve::values::{duration, flag, list, one_or_many, size, text};

/// The gateway's part of the main file. Values of the wrong shape were reported before and are
/// skipped here.
pub(crate) fn config(
    reader: &mut Reader<'_>,
    root: &Node<'_>,
    directories: &Directories<'_>,
) -> Config {
    let mut config = Config { state: directories.state(), ..Config::default() };
    if let Some(node) = root.get("listen") {
        config.listen = one_or_many(node)
            .filter_map(|node| value_syntax::listen(node.as_str()?).ok())
            .map(|listen| match listen {
                value_syntax::Listen::Unix(path) => {
                    value_syntax::Listen::Unix(directories.path(&path.to_string_lossy()))
                }
                tcp => tcp,
            })
            .collect();
        if matches!(&node.value, Value::Seq(items) if items.is_empty()) {
            reader.error(node.span, "`listen` is empty", "leave the key out for `127.0.0.1:7410`");
        }
    }
    config.public_url = text(root, "public_url");
    config.allowed_hosts = list(root, "allowed_hosts");
    config.allowed_origins = list(root, "allowed_origins");
    config.trusted_proxies = root
        .get("trusted_proxies")
        .map(|list| {
            list.items()
                .iter()
                .filter_map(|node| value_syntax::ip_range(node.as_str()?).ok())
                .collect()
        })
        .unwrap_or_default();
    config.cors = flag(root, "cors", false);
    config.tls = root.get("tls").and_then(|node| tls(node, directories));
    if let Some(admin) = root.get("admin").and_then(Node::as_str) {
        config.admin = value_syntax::address(admin).ok();
        config.admin_stated = true;
    }
    let (state, shared) = replicas::state(reader, root, directories);
    config.state = state.or(config.state);
    config.shared = shared;
    config.drain = replicas::drain(root);
    if root.get("naming").and_then(Node::as_str) == Some("flat") {
        config.naming = Naming::Flat;
    }
    if let Some(node) = root.get("separator") {
        check_separator(reader, node);
        config.separator = node.as_str().unwrap_or("__").to_owned();
    }
    config.list_timeout = duration(root, "list_timeout", config.list_timeout);
    config.limits_of = root.get("limits_of").map(limits_of).unwrap_or_default();
    config.servers = servers_of(reader, root, directories, &config.separator);
    config.builtin = flag(root, "builtin", false);
    config.agents = identities::agents(reader, root, directories);
    config.deny_on_missing_agent = deny_on_missing_agent(root);
    config.jwt = issuers::issuers(reader, root, directories);
    identities::check(reader, root, &config);
    config.limits = guards::limits(reader, root, directories);
    config.hooks = guards::hooks(reader, root, directories);
    config.pins = root.get("pins").and_then(Node::as_str).and_then(PinMode::parse);
    config.approvals = approvals::approvals(reader, root, directories);
    replicas::check_store(reader, root, &config);
    config.admins = approvals::admins(reader, root, directories);
    let own = config.builtin.then_some(BUILTIN_SERVER);
    let servers = config.servers.iter().map(|server| &*server.name).chain(own);
    let mut servers: Vec<&str> = servers.collect();
    // Servers of other files are not known yet.
    if root.get("servers_from").is_some() {
        servers.clear();
    }
    guards::check_servers(reader, root, &servers);
    builtin::check(reader, root, &config);
    config.audit = audit(reader, root.get("audit"), directories);
    config.telemetry = root
        .get("telemetry")
        .map(|node| observe::telemetry(reader, node, directories))
        .unwrap_or_default();
    config.read_only = flag(root, "read_only", false);
    config
}

/// How the servers of a file are reached.
pub(crate) fn servers_of(
    reader: &mut Reader<'_>,
    root: &Node<'_>,
    directories: &Directories<'_>,
    separator: &str,
) -> Vec<Server> {
    let mut found = Vec::new();
    for (key, node) in servers::listed(root) {
        servers::check_name(reader, key, separator);
        let client = root.get("mcpServers").is_some_and(|table| table.get(&key.name).is_some());
        found.extend(servers::server(reader, key, node, directories, client));
    }
    found
}

fn tls(node: &Node<'_>, directories: &Directories<'_>) -> Option<Tls> {
    let path = |key: &str| node.get(key).and_then(Node::as_str).map(|path| directories.path(path));
    Some(Tls { cert: path("cert")?, key: path("key")?, client_ca: path("client_ca") })
}

fn check_separator(reader: &mut Reader<'_>, node: &Node<'_>) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if node.as_str().is_some_and(|separator| !separator.chars().all(allowed)) {
        let help =
            "use letters, digits, `_`, `-` and `.`: clients accept nothing else in a tool's name";
        reader.error(node.span, "the separator must not contain such characters", help);
    }
}

fn limits_of(node: &Node<'_>) -> LimitsOf {
    let otherwise = LimitsOf::default();
    let count =
        |key| node.get(key).and_then(Node::as_int).and_then(|most| u32::try_from(most).ok());
    LimitsOf {
        request_bytes: size(node, "request_bytes", otherwise.request_bytes),
        response_bytes: size(node, "response_bytes", otherwise.response_bytes),
        buffered_bytes: size(node, "buffered_bytes", otherwise.buffered_bytes),
        waiting_requests: count("waiting_requests").unwrap_or(otherwise.waiting_requests),
        streams: count("streams").unwrap_or(otherwise.streams),
    }
}

fn audit(reader: &mut Reader<'_>, node: Option<&Node<'_>>, directories: &Directories<'_>) -> Audit {
    let otherwise = Audit { dir: directories.path("audit"), ..Audit::default() };
    let Some(node) = node else { return otherwise };
    let rotate = node.get("rotate").unwrap_or(node);
    if let (Some(anchor), None) = (node.get("anchor"), node.get("sign")) {
        let help = "set `audit.sign`: an anchor contains signatures";
        reader.error(anchor.span, "`anchor` has no effect without `sign`", help);
    }
    Audit {
        dir: node
            .get("dir")
            .and_then(Node::as_str)
            .map_or(otherwise.dir, |path| directories.path(path)),
        durability: match node.get("durability").and_then(Node::as_str) {
            Some("disk") => Durability::Disk,
            _ => Durability::Process,
        },
        arguments: match node.get("arguments").and_then(Node::as_str) {
            Some("none") => Arguments::None,
            Some("redacted") => Arguments::Redacted,
            Some("full") => Arguments::Full,
            _ => Arguments::Hash,
        },
        required: flag(node, "required", true),
        rotate_size: size(rotate, "size", otherwise.rotate_size),
        rotate_age: duration(rotate, "age", otherwise.rotate_age),
        retain: node.get("retain").and_then(|node| value_syntax::duration(node.as_str()?).ok()),
        redact: list(node, "redact"),
        refusals: node
            .get("refusals")
            .and_then(|node| value_syntax::rate(node.as_str()?).ok())
            .unwrap_or(otherwise.refusals),
        reserve: size(node, "reserve", otherwise.reserve),
        sinks: observe::sinks(reader, node.get("sinks"), directories),
        sign: node.get("sign").and_then(Node::as_str).map(|path| directories.path(path)),
        anchor: node.get("anchor").and_then(Node::as_str).map(|path| directories.path(path)),
    }
}
