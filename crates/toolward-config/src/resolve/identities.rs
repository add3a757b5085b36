//! Resolves identities of agents: `tokens`, `claims`, `uid`, `certificates`, and `identity`.
//!
//! A credential that matches two agents would identify neither, and is an error.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value as Json;

use crate::config::{Agent, Config, Discovery, Listen, Secret, Token};
use crate::diagnostics::diagnostic::Diagnostic;
use crate::diagnostics::sanitize::quoted;
use crate::diagnostics::suggest::nearest;
use crate::diagnostics::text::Span;
use crate::formats::expose::is_pattern;
use crate::io::Directories;
use crate::keys::value_syntax;
use crate::read::node::Node;
use crate::read::reader::Reader;
use crate::resolve::servers;
use crate::resolve::values::one_or_many;

/// Claims that contain lists: two agents with different words in them can match the same token.
const LISTS: [&str; 3] = ["scope", "scp", "aud"];

/// The agents of a file, with their credentials.
pub(crate) fn agents(
    reader: &mut Reader<'_>,
    root: &Node<'_>,
    directories: &Directories<'_>,
) -> Vec<Agent> {
    let mut agents = Vec::new();
    let mut owners = Owners::default();
    for (key, node) in root.get("agents").into_iter().flat_map(Node::entries) {
        let mut tokens = Vec::new();
        for token in node.get("tokens").map(Node::items).unwrap_or_default() {
            let Some(Ok(hash)) = token.as_str().map(value_syntax::token) else {
                continue;
            };
            let written = match hash {
                Some(_) => token.as_str().unwrap_or_default().to_ascii_lowercase(),
                None => token.as_str().unwrap_or_default().to_owned(),
            };
            owners.claim(reader, "token", &written, &key.name, token.span);
            tokens.extend(match hash {
                Some(hash) => Some(Token::Sha256(hash)),
                None => Secret::read(reader, token, directories).map(Token::Reference),
            });
        }
        let mut uids = Vec::new();
        for node in node.get("uid").into_iter().flat_map(one_or_many) {
            let Some(uid) = node.as_int().and_then(|uid| u32::try_from(uid).ok()) else {
                continue;
            };
            owners.claim(reader, "uid", &uid.to_string(), &key.name, node.span);
            uids.push(uid);
        }
        let mut certificates = Vec::new();
        for node in node.get("certificates").map(Node::items).unwrap_or_default() {
            let Some(Ok(mark)) = node.as_str().map(value_syntax::certificate) else {
                continue;
            };
            let written = format!("{mark:?}");
            owners.claim(reader, "certificate", &written, &key.name, node.span);
            certificates.push(mark);
        }
        agents.push(Agent {
            name: key.name.to_string(),
            tokens,
            claims: claims(reader, node),
            uids,
            certificates,
            discovery: match node.get("discovery").and_then(Node::as_str) {
                Some("progressive") => Discovery::Progressive,
                _ => Discovery::Direct,
            },
            mark: reader.mark(key.span),
        });
    }
    agents
}

fn claims(reader: &mut Reader<'_>, node: &Node<'_>) -> Vec<(String, Json)> {
    if let Some((claims, node)) = node.as_map().and_then(|map| map.entry("claims"))
        && node.as_map().is_some_and(|map| map.is_empty())
    {
        reader.error(
            claims.span,
            "`claims` is empty and would match every JWT",
            "name a claim, e.g. `sub`",
        );
    }
    let mut claims = Vec::new();
    for (key, value) in node.get("claims").into_iter().flat_map(Node::entries) {
        if value.as_str().is_some_and(|text| text.trim().is_empty()) {
            let message = format!("the claim {} has no value", quoted(&key.name));
            reader.error(key.span, message, "write the value that a JWT must have");
        }
        claims.push((key.name.to_string(), value.to_json()));
    }
    claims
}

/// The owner of each credential. A credential that identifies two agents is an error.
#[derive(Default)]
struct Owners(HashMap<(&'static str, String), (String, Span)>);

impl Owners {
    fn claim(
        &mut self,
        reader: &mut Reader<'_>,
        kind: &'static str,
        value: &str,
        agent: &str,
        span: Span,
    ) {
        let Some((owner, first)) =
            self.0.insert((kind, value.to_owned()), (agent.to_owned(), span))
        else {
            return;
        };
        let message = match owner == agent {
            true => format!("the {kind} is listed twice for {}", quoted(agent)),
            false => format!("the {kind} belongs to {} and to {}", quoted(&owner), quoted(agent)),
        };
        let first = reader.mark(first);
        let diagnostic = Diagnostic::error(message)
            .related(first, "first listed here")
            .help(format!("a {kind} must identify exactly one agent"));
        reader.report(span, diagnostic);
    }
}

/// Checks combinations of identities.
pub(crate) fn check(reader: &mut Reader<'_>, root: &Node<'_>, config: &Config) {
    let agents = root.get("agents").into_iter().flat_map(Node::entries);
    let agents: HashMap<&str, &Node<'_>> =
        agents.map(|(key, node)| (key.name.as_ref(), node)).collect();
    let key = |agent: &str, name: &str| -> Option<Span> {
        agents.get(agent)?.as_map()?.entry(name).map(|(key, _)| key.span)
    };
    let listens_on_unix = config.listen.iter().any(|listen| matches!(listen, Listen::Unix(_)));
    let asks_for_certificates = config.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    for agent in &config.agents {
        if let Some(span) = key(&agent.name, "claims")
            && !agent.claims.is_empty()
            && root.get("identity").and_then(|node| node.get("jwt")).is_none()
        {
            let help = "configure the issuer: `identity: { jwt: { issuer: … } }`";
            reader.error(span, "`claims` can never match, because JWTs are not accepted", help);
        }
        if let Some(span) = key(&agent.name, "claims")
            && config.jwt.len() > 1
            && !agent.claims.is_empty()
            && !agent.claims.iter().any(|(name, _)| name == "iss")
        {
            let message = "`claims` match the JWTs of every issuer, because they do not name one";
            reader.warning(span, message, "add the claim `iss`");
        }
        if let Some(span) = key(&agent.name, "certificates")
            && !agent.certificates.is_empty()
            && !asks_for_certificates
        {
            let help = "configure their CA: `tls: { client_ca: FILE, … }`";
            reader.error(
                span,
                "`certificates` can never match, because client certificates are \
                not requested",
                help,
            );
        }
        if let Some(span) = key(&agent.name, "uid")
            && !listens_on_unix
        {
            let help = "user ids are known on a Unix socket only: `listen: unix:PATH`";
            reader.warning(span, "`uid` can never match, because there is no Unix socket", help);
        }
    }
    for (_, server) in servers::listed(root) {
        let named = || server.get("headers_for").into_iter().flat_map(Node::entries);
        for (key, _) in named().filter(|(key, _)| is_pattern(&key.name)) {
            let message =
                format!("{} is a pattern, and credentials are an agent's own", quoted(&key.name));
            reader.error(key.span, message, "write the agent's name");
        }
        for (key, _) in named().filter(|(key, _)| !agents.contains_key(key.name.as_ref())) {
            let near = nearest(&key.name, config.agents.iter().map(|agent| agent.name.as_str()));
            let help = match near {
                Some(near) => format!("did you mean {}?", quoted(near)),
                None => "agents are defined under `agents`".into(),
            };
            let message = format!("this file has no agent named {}", quoted(&key.name));
            reader.warning(key.span, message, &help);
        }
    }
    for host in root.get("allowed_hosts").map(Node::items).unwrap_or_default() {
        if host.as_str().is_some_and(|host| host.contains('*')) {
            let message = "hosts are listed individually, and `*` matches none";
            reader.error(host.span, message, "list each host name that clients use");
        }
    }
    check_claims(reader, &config.agents, &key);
    if let Some((jwt, _)) = root.get("identity").and_then(|node| node.as_map()?.entry("jwt"))
        && config.jwt.iter().any(|jwt| jwt.audience.is_empty())
        && config.public_url.is_none()
    {
        let help = "set `public_url`, which is the audience together with its path, or `audience`";
        reader.error(jwt.span, "`jwt` has no audience", help);
    }
    if let Some((cors, _)) = root.as_map().and_then(|map| map.entry("cors"))
        && config.cors
        && config.allowed_origins.is_empty()
    {
        let help = "list the origins in `allowed_origins`, or remove `cors`";
        reader.warning(cors.span, "`cors` has no effect, because no origin is allowed", help);
    }
}

/// Two agents that can match the same JWT are an error, unless a claim distinguishes them.
fn check_claims(
    reader: &mut Reader<'_>,
    agents: &[Agent],
    key: &dyn Fn(&str, &str) -> Option<Span>,
) {
    let with_claims: Vec<&Agent> = agents.iter().filter(|agent| !agent.claims.is_empty()).collect();
    let mut earlier = ClaimGroups::default();
    for (at, agent) in with_claims.iter().enumerate() {
        let Some(other) = earlier.add(at, agent).and_then(|at| with_claims.get(at)) else {
            continue;
        };
        let (Some(first), Some(second)) = (key(&other.name, "claims"), key(&agent.name, "claims"))
        else {
            continue;
        };
        let names = (quoted(&other.name), quoted(&agent.name));
        let first = reader.mark(first);
        let diagnostic =
            Diagnostic::error(format!("one JWT could identify both {} and {}", names.0, names.1))
                .related(first, "one token can have both sets of claims")
                .help("give both a claim with different values, e.g. `sub`");
        reader.report(second, diagnostic);
    }
}

/// Agents grouped by the claims that can distinguish them.
///
/// One token can match two agents unless they require different values of the same claim. Agents
/// that require the same claims form a group, and each pair of groups is compared by the values of
/// their shared claims. So the time is linear in the number of agents if there are few groups.
#[derive(Default)]
struct ClaimGroups<'a> {
    groups: Vec<Group<'a>>,
}

/// Agents that require the same claims.
struct Group<'a> {
    names: BTreeSet<&'a str>,
    members: Vec<(usize, &'a Agent)>,
    /// The first member with given values of some of the claims.
    first: HashMap<BTreeSet<&'a str>, HashMap<String, usize>>,
}

impl<'a> ClaimGroups<'a> {
    /// Adds an agent; returns the first earlier agent that the same token could match.
    fn add(&mut self, at: usize, agent: &'a Agent) -> Option<usize> {
        let names = agent.claims.iter().map(|(name, _)| name.as_str());
        let names: BTreeSet<&str> = names.filter(|name| !LISTS.contains(name)).collect();
        let same = self.groups.iter_mut().filter_map(|group| {
            let shared: BTreeSet<&str> = names.intersection(&group.names).copied().collect();
            let wanted = values(agent, &shared);
            let members = &group.members;
            let first = group.first.entry(shared).or_insert_with_key(|shared| {
                // Of several with the same values, the first is kept.
                let members = members.iter().rev();
                members.map(|(at, member)| (values(member, shared), *at)).collect()
            });
            first.get(&wanted).copied()
        });
        let found = same.min();
        let own = self.groups.iter().position(|group| group.names == names);
        let own = own.unwrap_or_else(|| {
            let (members, first) = (Vec::new(), HashMap::new());
            self.groups.push(Group { names, members, first });
            self.groups.len() - 1
        });
        if let Some(group) = self.groups.get_mut(own) {
            group.members.push((at, agent));
            for (shared, first) in &mut group.first {
                first.entry(values(agent, shared)).or_insert(at);
            }
        }
        found
    }
}

/// The values that an agent requires of these claims, in their order.
fn values(agent: &Agent, names: &BTreeSet<&str>) -> String {
    let value = |name: &&str| agent.claims.iter().find(|(own, _)| own == name);
    let values: Vec<&Json> = names.iter().filter_map(value).map(|(_, value)| value).collect();
    serde_json::json!(values).to_string()
}
