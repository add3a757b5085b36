//! The table of all configuration keys, in the order of the reference page.

/// A table of keys: name, shape, properties, and a one-sentence description.
macro_rules! table {
    ($vis:vis $table:ident:
        $($name:literal: $shape:expr $(, $also:ident $(($value:literal))?)* => $doc:literal;)*) => {
        $vis static $table: &[KeySpec] = &[$(key($name, $shape, $doc)$(.$also($($value)?))*),*];
    };
}

pub(crate) mod check;
pub(crate) mod fix_hints;
mod foreign;
mod lookup;
pub(crate) mod secret_spans;
pub(crate) mod shape;
pub(crate) mod value_syntax;

pub(crate) use foreign::{PLUGIN_FILE, TOML_TOOLS, TOOL_MANAGER};
pub(crate) use lookup::{advice, homes, is_main_key, server_keys, top_keys, walk};

use crate::keys::shape::KeySpec;
use crate::keys::shape::Shape::{
    self, AddressOrOff, AddressOrSwitch, Bool, Certificate, Duration, DurationOr, Either, Integer,
    IpRange, Keys, Leeway, List, Listen, Message, Name, OneOrList, Origin, Path, Rate, Ratio,
    Scalar, Secret, SecretUrl, Size, Table, Text, Token, Url, Word,
};

const fn key(name: &'static str, shape: Shape, doc: &'static str) -> KeySpec {
    KeySpec { name, shape, default: None, doc, required: false, main_only: false, not_yet: false }
}

impl KeySpec {
    const fn default(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }

    const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    const fn main_only(mut self) -> Self {
        self.main_only = true;
        self
    }

    const fn not_yet(mut self) -> Self {
        self.not_yet = true;
        self
    }
}

const COUNT: Shape = Integer { least: 1, most: u32::MAX as i64 };
const SELECTOR: Shape = Text("a selector");
const PATTERN: Shape = Text("a name or pattern");
const NAME: Shape = Name("a name");
const STRINGS: Shape = List(&Text("a string"));
const TEST_CALLS: Shape = List(&Name("a call such as `server/tool`"));
const CASE: Shape = Word(&["sensitive", "insensitive"]);
const PIN_MODES: [&str; 4] = ["off", "warn", "classify", "strict"];

/// Only asymmetric signatures, which a public key verifies.
const ALGORITHMS: &[&str] =
    &["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];

/// The whole configuration.
pub const CONFIGURATION: Shape =
    Keys(&[GATEWAY, AGENTS_KEYS, ALLOWLIST_KEYS, GUARDS, REFUSALS, TEST_KEYS]);

/// A file with only an allowlist.
pub(crate) const ALLOWLIST: Shape = Keys(&[ALLOWLIST_KEYS, REFUSALS, TEST_KEYS]);

/// A file with only agents' rules.
pub(crate) const AGENTS: Shape = Keys(&[AGENTS_KEYS, REFUSALS, TEST_KEYS]);

table! { GATEWAY:
    "listen": OneOrList(&Listen), default("127.0.0.1:7410"), main_only =>
        "Address of the MCP endpoint, or a list; `unix:PATH` for a Unix socket. Addresses beyond \
         loopback require authentication.";
    "public_url": Url, main_only =>
        "The URL by which clients reach the endpoint.";
    "allowed_hosts": List(&Name("a host name")), default("loopback names"), main_only =>
        "Values of `Host` that are accepted in addition to loopback names.";
    "allowed_origins": List(&Origin), default("none"), main_only =>
        "Values of `Origin` that are accepted in addition to loopback.";
    "trusted_proxies": List(&IpRange), default("none"), main_only =>
        "Proxies whose `X-Forwarded-For`, `-Proto` and `-Host` are honored, for the audit log and \
         URLs; never for identity.";
    "cors": Bool, default("false"), main_only =>
        "Whether browsers at `allowed_origins` get CORS headers.";
    "tls": Keys(&[TLS]), main_only =>
        "Certificate and key of the endpoint; reloaded when their files change.";
    "admin": AddressOrOff, default("127.0.0.1:7411"), main_only =>
        "Loopback address of the admin UI and of `/status`; `off` turns it off. The admin UI needs the \
         token that is logged at startup.";
    "admins": Table { key: "admin", value: &Keys(&[ADMIN]) }, main_only =>
        "People who may use the admin UI, with their tokens and what they may approve. With `admins`, the token that \
         is logged at startup is read-only, and `toolward approve` needs an admin's token.";
    "state": Either(&Path, &Keys(&[STATE])), default("~/.local/state/toolward"), main_only =>
        "State directory: the key that encrypts session ids, ended sessions, the admin UI's token, the protocol \
         versions and last lists of servers, and the control socket; or a mapping, for several gateways.";
    "drain": Keys(&[DRAIN]), main_only =>
        "How the gateway shuts down after SIGTERM.";
    "naming": Word(&["prefix", "flat"]), default("prefix"), main_only =>
        "How tools of several servers are named: `SERVER__TOOL`, or by their own names.";
    "separator": Name("a separator"), default("__"), main_only =>
        "Separator between server and tool in a prefixed name.";
    "list_timeout": Duration, default("20s"), main_only =>
        "How long a listing waits for a server, for example while it starts.";
    "limits_of": Keys(&[LIMITS_OF]), main_only =>
        "Limits on sizes and connections.";
    "servers": Table { key: "server", value: &Keys(&[SERVER]) }, main_only =>
        "The MCP servers behind the gateway.";
    "mcpServers": Table { key: "server", value: &Keys(&[SERVER, CLIENT_SERVER]) }, main_only =>
        "The same as `servers`, as MCP clients write it (`.mcp.json`). `timeout` may be a number of \
         seconds, and references are replaced in `args` too.";
    "servers_from": List(&Path), main_only =>
        "Configuration files of MCP clients whose servers are added: `.mcp.json`, VS Code's `mcp.json`, \
         `claude_desktop_config.json`, Windsurf's `mcp_config.json`, Cline's settings.";
}

table! { AGENTS_KEYS:
    "agents": Table { key: "agent", value: &Keys(&[AGENT]) } =>
        "Agents, with their credentials and rules. A name with `*`, `?` or `[` is a pattern, for agents without an \
         entry of their own; no agent may match two patterns.";
    "roles": Table { key: "role", value: &Keys(&[ROLE]) } =>
        "Named rules that agents can share.";
    "defaults": Keys(&[DEFAULTS]) =>
        "Settings for agents that this file does not name.";
}

table! { ALLOWLIST_KEYS:
    "allowed_tools": List(&ENTRY_SHAPE) =>
        "An allowlist for all agents; an empty list allows nothing.";
    "allowed_prompts": List(&PROMPT_SHAPE) =>
        "Prompts that the allowlist allows.";
    "allowed_resources": List(&RESOURCE_SHAPE) =>
        "Resources that the allowlist allows.";
    "case": CASE, default("insensitive") =>
        "Whether the allowlist is case-sensitive.";
}

table! { GUARDS:
    "policies": List(&Either(&Path, &Keys(&[POLICY_FILE]))), main_only =>
        "Additional layers: files in any supported format.";
    "identity": Keys(&[IDENTITY]), main_only =>
        "How callers are identified, in addition to tokens.";
    "limits": Keys(&[LIMITS, RATES]), main_only =>
        "Rate limits for all agents together.";
    "hooks": List(&Keys(&[HOOK])), main_only =>
        "Programs and services that can refuse a call before it is forwarded.";
    "approvals": Keys(&[APPROVALS]), main_only =>
        "How calls wait for a person's approval.";
    "pins": Word(&PIN_MODES), default("off; classify with a lock file"), main_only =>
        "How to treat a tool, prompt or resource template whose definition is not the approved one. `warn` \
         reports it, `classify` hides what may do more than before and otherwise shows the approved definition, \
         `strict` hides every changed one.";
    "builtin": Bool, default("false"), main_only =>
        "Whether the built-in server `toolward` is offered, with `server_config` and the tools for \
         progressive discovery.";
    "audit": Keys(&[AUDIT]), main_only =>
        "The audit log.";
    "telemetry": Keys(&[TELEMETRY]), main_only =>
        "Logs, metrics and traces.";
    "read_only": Bool, default("false"), main_only =>
        "Whether only tools with `hint:read-only` may be used.";
    "explain_to_agent": Bool, default("true"), main_only =>
        "Whether refusals tell agents the reason and what they may call instead. With `false`, the text \
         is only `is not permitted`; the audit log has the reason.";
}

table! { REFUSALS:
    "message": Message =>
        "Added to every refusal of a call: how to get permission. At most 500 characters.";
}

table! { TEST_KEYS:
    "tests": List(&Keys(&[TEST])) =>
        "Expected decisions; a policy whose tests fail is not loaded.";
}

table! { TLS:
    "cert": Path, required =>
        "Certificate chain, PEM.";
    "key": Path, required =>
        "Private key, PEM.";
    "client_ca": Path =>
        "Certificate authorities for client certificates, which are then required.";
}

table! { SERVER_TLS:
    "ca": Path, default("system roots") =>
        "Certificate authorities that are trusted for this server instead of the system's, PEM.";
    "cert": Path =>
        "Client certificate chain, PEM.";
    "key": Path =>
        "Private key of the client certificate, PEM.";
}

table! { STATE:
    "dir": Path, default("~/.local/state/toolward") =>
        "State directory; each gateway has its own.";
    "keys": List(&Secret), default("the directory's own") =>
        "Secrets that gateways share, each at least 32 characters long: `${NAME}` or `${file:PATH}`. Session ids, \
         cursors, task ids and the like are sealed with the first one and opened with all, so that they are valid at \
         every gateway, and keys can be rotated by reloads.";
    "store": Secret, default("the directory") =>
        "The `postgres://` URL of a database with the tickets and grants of several gateways, which must have the \
         same `keys`. Tables are created at the first start.";
}

table! { DRAIN:
    "delay": Leeway, default("5s; 0s if all listeners are on loopback or Unix sockets") =>
        "How long the gateway still accepts requests while `/readyz` answers 503, so that load balancers notice.";
    "wait": Duration, default("30s") =>
        "How long requests in flight may take afterwards. Those that take longer are aborted, and recorded as such.";
}

table! { LIMITS_OF:
    "request_bytes": Size, default("4 MiB") =>
        "The largest request.";
    "response_bytes": Size, default("64 MiB") =>
        "The largest response of a server.";
    "buffered_bytes": Size, default("512 MiB") =>
        "Memory for everything buffered for clients: requests, results, queued notifications, replay logs. One agent can use a quarter of it.";
    "waiting_requests": COUNT, default("2000") =>
        "Maximum number of requests of one agent over HTTP that wait for their response. Further ones are rejected with \
         429 and `Retry-After`, before anything is forwarded.";
    "streams": COUNT, default("10000") =>
        "Maximum number of client connections. At the limit, unauthenticated ones are closed first.";
}

table! { pub(crate) SERVER:
    "command": Name("a program's name") =>
        "A program that speaks MCP on stdin and stdout. A path with a `/` is relative to this \
         file.";
    "args": STRINGS =>
        "Its arguments.";
    "env": Table { key: "variable", value: &Secret } =>
        "Environment variables; `${NAME}` and `${file:PATH}` are replaced.";
    "inherit_env":
        Either(&Bool, &List(&Text("a variable's name or pattern"))), default("connectivity variables") =>
        "Variables of the gateway that it gets in addition to `env` and those that connectivity needs: \
         names or patterns, or `true` for all of them.";
    "cwd": Path =>
        "Its working directory.";
    "url": SecretUrl =>
        "The server's MCP endpoint over HTTP.";
    "headers": Table { key: "header", value: &Secret } =>
        "Headers sent with each request; `${NAME}` and `${file:PATH}` are replaced.";
    "headers_for": Table { key: "agent", value: &Table { key: "header", value: &Secret } } =>
        "Headers for one agent's requests; they replace those of the same name in `headers`.";
    "oauth": Keys(&[OAUTH]) =>
        "Gets tokens from the server's authorization server with client credentials.";
    "login": Keys(&[LOGIN]) =>
        "The server needs a person to log in (OAuth): `toolward login SERVER`. `{}` discovers everything.";
    "exchange": Keys(&[OAUTH, EXCHANGE]) =>
        "Tokens for this server that are exchanged for the JWT of the caller (RFC 8693).";
    "tls": Keys(&[SERVER_TLS]) =>
        "A private CA, and a client certificate, for an `https` server.";
    "transport": Word(&["streamable", "sse"]), default("detected") =>
        "The HTTP transport.";
    "start": Word(&["lazy", "eager"]), default("lazy") =>
        "Whether the server starts on first use or with the gateway.";
    "timeout":
        Either(&Duration, &Table { key: "tool pattern", value: &Duration }), default("60s") =>
        "How long a call may go without a response or progress; a value, or a map by tool pattern.";
    "max_timeout": Duration, default("10m") =>
        "How long a call may take in total. If it is not set, a longer `timeout` applies.";
    "result_bytes":
        Either(&Size, &Table { key: "tool pattern", value: &Size }), default("response_bytes") =>
        "The largest result of a call; a value, or a map by tool pattern. A larger result is not \
         passed on, not even in part.";
    "share": Bool, default("false") =>
        "Whether agents share one process of this server (one for sessions, one for stateless requests).";
    "cache": Bool, default("true") =>
        "Whether the server's last known list is kept in the state directory and shown until the server has started.";
    "max_children": COUNT, default("32") =>
        "Maximum number of processes of this server. If all are busy, further sessions wait.";
    "description": Text("a string") =>
        "A description of the server, shown by `list_servers`.";
    "expose": List(&EXPOSE_SHAPE), default("all") =>
        "The server's tools that exist for clients: names, patterns, or renames; an empty list \
         exposes nothing.";
    "expose_prompts": List(&EXPOSE_PROMPT_SHAPE), default("all") =>
        "The server's prompts that exist for clients, in the same form: names, patterns, or renames.";
    "hints": Table { key: "tool pattern", value: &List(&Name("a hint")) } =>
        "Hints of tools; they replace the server's claims.";
    "hints_from": Name("`builtin` or `builtin:NAME`") =>
        "A reviewed set of hints for a well-known server: the one for the package that `command` starts, or the one \
         named. `hints` take precedence over it, and it takes precedence over the server's claims.";
    "trust_annotations": Bool, default("true") =>
        "Whether the server's annotations are trusted.";
    "action_keys":
        Either(&List(&NAME), &Table { key: "tool pattern", value: &List(&NAME) }),
        default("[what, action]") =>
        "Arguments that select an action; a list, or a map by tool pattern.";
    "methods": List(&Name("a method")), default("[]"), not_yet =>
        "Additional methods to forward.";
    "roots": List(&Name("a path or a `file://` URI")), default("the client's") =>
        "Directories that the gateway gives as roots to this server, instead of the client's: paths, relative to \
         this file, or `file://` URIs.";
    "schemes": List(&Name("a URI scheme")), default("none") =>
        "URI schemes of resources that belong to this server: `jira`, or a scheme and host such as \
         `https://docs.example`. Two servers cannot have the same one.";
    "pins": Keys(&[SERVER_PINS]) =>
        "How changed definitions of this server are treated.";
    "limits": Keys(&[SERVER_RATES]) =>
        "Rate limits of this server, for all agents together.";
}

table! { OAUTH:
    "token_url": SecretUrl, required =>
        "The token endpoint.";
    "client_id": Secret, required =>
        "The gateway's client id.";
    "client_secret": Secret, required =>
        "The client secret: `${NAME}` or `${file:PATH}`.";
    "scope": Name("a scope") =>
        "Scopes to request, separated by spaces.";
}

table! { EXCHANGE:
    "audience": Name("an audience"), default("`resource`: the server's URL") =>
        "The audience of the tokens.";
}

table! { LOGIN:
    "client_id": Secret, default("registered at login") =>
        "The id of an OAuth client that is registered at the provider.";
    "client_secret": Secret =>
        "Its secret: `${NAME}` or `${file:PATH}`.";
    "scope": Name("a scope"), default("as requested by the server") =>
        "Scopes to request, separated by spaces.";
    "flow": Word(&["browser", "device", "paste"]), default("browser") =>
        "How a person logs in: `browser` on this machine, `device` with a code in any browser, or `paste` with any \
         browser and the address that it ends at.";
    "of": Word(&["gateway", "agent"]), default("gateway") =>
        "Whose login a call uses: one for all agents, or one for each agent (`toolward login SERVER --as AGENT`).";
    "resource": Either(&Bool, &Url), default("discovered") =>
        "The resource that tokens are requested for (RFC 8707); `false` if the provider rejects that parameter.";
    "redirect": Url, default("http://127.0.0.1:7411/oauth/callback") =>
        "The address that the provider redirects the browser to.";
    "client_metadata_url": Url =>
        "A client id metadata document, for providers that support it.";
    "issuer": Url, default("discovered") =>
        "The authorization server. Two servers with the same one must state it.";
}

// Keys that MCP clients use in `mcpServers` in addition to the keys above.
table! { CLIENT_SERVER:
    "type": Word(&["stdio", "http", "streamable-http", "sse"]) =>
        "The transport, as clients name it.";
    "serverUrl": SecretUrl =>
        "The same as `url`.";
    "envFile": Path =>
        "A file of `NAME=VALUE` lines with environment variables; `env` takes precedence.";
    "disabled": Bool, default("false") =>
        "A disabled server is left out.";
    "alwaysAllow": STRINGS =>
        "A setting of clients; ignored.";
    "autoApprove": STRINGS =>
        "A setting of clients; ignored.";
}

const EXPOSE_SHAPE: Shape = Either(&Name("a tool's name"), &EXPOSED_TOOL);
pub(crate) const EXPOSED_TOOL: Shape = Keys(&[EXPOSE, DISPLAY]);
const EXPOSE_PROMPT_SHAPE: Shape =
    Either(&Name("a prompt's name"), &Keys(&[EXPOSE_PROMPT, DISPLAY]));

table! { EXPOSE:
    "tool": Name("a tool's name"), required =>
        "The server's own name of the tool, or a pattern.";
}

table! { EXPOSE_PROMPT:
    "prompt": Name("a prompt's name"), required =>
        "The server's own name of the prompt, or a pattern.";
}

table! { DISPLAY:
    "display_name": Name("a display name") =>
        "The name that clients see instead.";
    "display_description": Text("a string") =>
        "The description that clients see instead.";
}

pub(crate) const ENTRY_SHAPE: Shape = Either(&SELECTOR, &Keys(&[TOOL_ENTRY, ENTRY]));
const PROMPT_SHAPE: Shape = Either(&SELECTOR, &Keys(&[PROMPT_ENTRY, ENTRY]));
const RESOURCE_SHAPE: Shape = Either(&SELECTOR, &Keys(&[RESOURCE_ENTRY, ENTRY]));

table! { TOOL_ENTRY:
    "tool": SELECTOR, required =>
        "The selector.";
}

table! { PROMPT_ENTRY:
    "prompt": SELECTOR, required =>
        "The prompt's name, or a pattern.";
}

table! { RESOURCE_ENTRY:
    "resource": SELECTOR, required =>
        "The resource's URI, or a pattern.";
}

table! { ENTRY:
    "when": Name("a CEL expression") =>
        "A condition in CEL; if it is false, the entry is skipped.";
    "ask": Either(&Bool, &Keys(&[ASK])), default("false") =>
        "A person must approve each call that this entry allows.";
    "limit": Rate =>
        "Rate limit for calls that this entry allows.";
    "scope": Name("OAuth scopes, separated by spaces") =>
        "OAuth scopes that the caller's token must have, separated by spaces; without them the entry does not allow. \
         The tool stays listed.";
    "shadow": Bool, default("false") =>
        "Record what the entry would have decided, without applying it.";
    "message": Message =>
        "Added to the refusal of a listed tool if this entry denies the call, or its condition is not \
         met: how to get permission. At most 500 characters.";
}

table! { POLICY_FILE:
    "file": Path =>
        "The file.";
    "bundle": Url =>
        "The URL of a signed bundle of policy files, as `toolward bundle sign` makes it, instead of a file. A gateway \
         fetches newer ones while it runs.";
    "key": Name("a public key") =>
        "The public key that verifies the bundle: `ed25519:HEX`.";
    "poll": Duration, default("30s") =>
        "The interval at which a newer bundle is looked for.";
    "shadow": Bool, default("false") =>
        "Record what the layer would have decided, without applying it.";
}

table! { SERVER_PINS:
    "mode": Word(&PIN_MODES), default("`pins`") =>
        "The mode of this server, instead of the one for all servers.";
    "ignore": List(&Name("a JSON Pointer")), default("[]") =>
        "Parts of definitions that may change: JSON Pointers such as \
         `/inputSchema/properties/project/enum`. `toolward lock` proposes them.";
}

table! { ASK:
    "hold": Duration, default("approvals.hold") =>
        "How long a call is kept open while it waits for a person.";
    "ttl": Duration, default("approvals.ttl") =>
        "How long a person may take.";
    "approvers": List(&Name("an admin")), default("anyone who may approve") =>
        "The `admins` that can approve. Without a matching admin, the entry denies.";
}

table! { APPROVALS:
    "hold": Duration, default("45s") =>
        "How long a call is kept open while it waits for a person. Many clients time out after 60 seconds.";
    "ttl": Duration, default("10m") =>
        "How long a person may take. Afterwards the call has to be made again.";
    "max_grant": Duration, default("7d") =>
        "The longest grant that an approver can give.";
    "store": Secret, default("state.store, or the state directory") =>
        "Where tickets and grants are kept, if gateways share them: the URL of a PostgreSQL database \
         (`postgres://…`) or of a single Redis server (`redis://…`). The gateways must have the same `state.keys`.";
    "notify": List(&Keys(&[NOTIFY])) =>
        "How approvers learn about a call that waits for them.";
}

table! { NOTIFY:
    "exec": List(&Text("a string")) =>
        "A program and its arguments, started without a shell. It gets a summary on its standard input.";
    "http": SecretUrl =>
        "A URL to which a summary is posted.";
    "format": Word(&["json", "slack", "ntfy"]), default("json") =>
        "The format of the request.";
    "arguments": Bool, default("false") =>
        "Whether the notification contains the call's arguments.";
}

table! { ADMIN:
    "tokens": List(&Token), required =>
        "Tokens of the admin: `sha256:HASH`, `${NAME}` or `${file:PATH}`. They are not accepted from agents.";
    "approve": List(&Name("a server/tool pattern")), default("[]") =>
        "Calls that the admin may approve: `SERVER/TOOL`, each may be a pattern.";
    "edit": Bool, default("false") =>
        "Whether the admin may save proposed changes of what agents may use, and accept changed definitions, in the \
         admin UI.";
}

table! { AGENT:
    "tokens": List(&Token), main_only =>
        "Bearer tokens of the agent: `sha256:HASH`, `${NAME}` or `${file:PATH}`.";
    "claims": Table { key: "claim", value: &Scalar }, main_only =>
        "Claims that a JWT must have to identify this agent, all of them. A claim may also be a list that \
         contains the value; in `scope`, each word is compared.";
    "uid": OneOrList(&Integer { least: 0, most: u32::MAX as i64 }), main_only =>
        "User ids that identify this agent on a Unix socket.";
    "certificates": List(&Certificate), main_only =>
        "Client certificates of this agent: by `CN=NAME`, `DNS:HOST` or `URI:URI` in the certificate, \
         or by its fingerprint `sha256:HASH`.";
    "trusted_ui": Bool, default("false"), main_only =>
        "Whether the agent's client is trusted to show requests for approval to a person. If so, calls of entries with \
         `ask` and without `approvers` can be approved in the client.";
    "allow": Keys(&[SIDE, ALLOW_ONLY]) =>
        "Servers, tools, prompts and resources that the agent may use.";
    "deny": Keys(&[SIDE]) =>
        "Servers, tools, prompts and resources that the agent may not use; a deny always wins over an allow.";
    "roles": List(&Name("a role")) =>
        "Roles of this file whose rules the agent has, in front of its own.";
    "case": CASE, default("sensitive") =>
        "Whether this agent's rules are case-sensitive.";
    "discovery": Word(&["direct", "progressive"]), default("direct"), main_only =>
        "Whether the agent lists all its tools, or finds and calls them through the built-in server \
         (`builtin`).";
    "limits": Keys(&[RATES]) =>
        "Rate limits of this agent.";
    "explain_to_agent": Bool, default("the file's") =>
        "Whether refusals tell this agent the reason and what it may call instead.";
    "message": Message =>
        "Added to every refusal of this agent's calls instead of the file's: how to get \
         permission. At most 500 characters.";
}

table! { ROLE:
    "allow": Keys(&[SIDE, ALLOW_ONLY]) =>
        "Servers, tools, prompts and resources that agents with this role may use.";
    "deny": Keys(&[SIDE]) =>
        "Servers, tools, prompts and resources that agents with this role may not use.";
}

table! { SIDE:
    "servers": List(&PATTERN) =>
        "Servers, by name or pattern.";
    "tools": Table { key: "server", value: &List(&ENTRY_SHAPE) } =>
        "Tools, by server name or pattern.";
    "prompts": Table { key: "server", value: &List(&PROMPT_SHAPE) } =>
        "Prompts, by server name or pattern.";
    "resources": Table { key: "server", value: &List(&RESOURCE_SHAPE) } =>
        "Resources, by server name or pattern.";
}

table! { ALLOW_ONLY:
    "client_requests":
        List(&Word(&[
            "sampling", "sampling.thisServer", "sampling.allServers",
            "elicitation", "elicitation.form", "elicitation.url",
            "roots", "*",
        ])), default("[elicitation, roots]") =>
        "Requests of servers that may reach this agent's client. `elicitation` covers both forms of it; sampling with \
         the context of servers has to be allowed by its own name.";
}

table! { DEFAULTS:
    "deny_on_missing_agent": Bool, default("true") =>
        "Whether a caller that this file does not name is denied; otherwise the rules of the agent \
         `default` apply.";
}

table! { IDENTITY:
    "jwt": OneOrList(&Keys(&[JWT])) =>
        "Identity from JSON Web Tokens: an issuer, or a list of several.";
}

table! { JWT:
    "issuer": SecretUrl, required =>
        "The `iss` claim.";
    "jwks": Secret, default("from the issuer's metadata") =>
        "The issuer's keys: a URL, or a file.";
    "audience": OneOrList(&Name("an audience")), default("public_url and path") =>
        "Accepted `aud` claims.";
    "algorithms":
        List(&Word(ALGORITHMS)), default("[RS256, PS256, ES256, EdDSA]") =>
        "Accepted algorithms.";
    "leeway": Leeway, default("60s") =>
        "Allowed clock skew.";
    "agent_claim": Name("a claim") =>
        "The claim that names the agent, for JWTs that match no agent's `claims`.";
}

table! { RATES:
    "calls": Rate =>
        "All calls together.";
    "tools": Table { key: "server/tool pattern", value: &Rate } =>
        "Calls to all matching tools together.";
    "lists": Rate =>
        "Listings.";
    "refused": Rate =>
        "Refused calls: beyond this rate, responses are delayed but not changed.";
}

table! { SERVER_RATES:
    "calls": Rate =>
        "All calls to this server.";
    "tools": Table { key: "tool pattern", value: &Rate } =>
        "Calls to all matching tools of this server together.";
}

table! { LIMITS:
    "store": Secret, default("memory") =>
        "`memory`, or the URL of a Redis server, Sentinel group or Cluster (`redis://…`, `redis-sentinel://…`, \
         `redis-cluster://…`) to count across replicas.";
    "on_store_error": Word(&["deny", "memory"]), default("deny") =>
        "Whether calls are refused or counted locally if the store is unavailable.";
    "timeout": Duration, default("50ms") =>
        "How long the store may take to answer a call.";
    "connect_timeout": Duration, default("1s") =>
        "How long connecting to the store may take.";
}

table! { HOOK:
    "name": NAME, required =>
        "Name of the hook in the audit log.";
    "exec": List(&Text("a string")) =>
        "A program and its arguments.";
    "policy_sh": Path =>
        "A bash file that defines `mcp_tools_policy_check`.";
    "http": SecretUrl =>
        "A URL that decides by its response to a POST request.";
    "persistent": Bool, default("false") =>
        "Whether a long-running process answers all calls.";
    "priority": Integer { least: 0, most: 100 }, default("50") =>
        "Lower runs first.";
    "critical": Bool, default("true") =>
        "Whether a failure refuses the call.";
    "timeout": Duration, default("2s") =>
        "Timeout for an answer.";
    "start_timeout": Duration, default("30s") =>
        "How long a persistent hook may take from its start to its first answer.";
    "enabled": Bool, default("true") =>
        "Whether the hook runs.";
    "arguments": Bool, default("false") =>
        "Whether the hook gets the call's arguments.";
    "env": Table { key: "variable", value: &Secret } =>
        "Environment variables of the hook.";
    "pass_env": STRINGS =>
        "Variables of the gateway that it gets, by name or pattern.";
    "agents": List(&PATTERN) =>
        "Agents whose calls it checks.";
    "servers": List(&PATTERN) =>
        "Servers whose calls it checks.";
    "tools": List(&SELECTOR) =>
        "Tools whose calls it checks.";
}

table! { AUDIT:
    "dir": Path, default("audit") =>
        "Directory of the audit log.";
    "durability": Word(&["process", "disk"]), default("process") =>
        "Whether a record must be handed to the kernel, or be on disk, before a call is forwarded.";
    "arguments": Word(&["none", "hash", "redacted", "full"]), default("hash") =>
        "How much of a call's arguments is recorded.";
    "required": Bool, default("true") =>
        "Whether calls are refused while the audit log cannot be written.";
    "rotate": Keys(&[ROTATE]) =>
        "When a new segment is started.";
    "retain": DurationOr("forever"), default("forever") =>
        "How long segments are kept.";
    "redact": List(&NAME) =>
        "Argument names and patterns that are never recorded.";
    "refusals": Rate, default("60/min burst 1000") =>
        "How many refusals and listings of an agent are recorded individually; further ones are aggregated.";
    "reserve": Size, default("256 MiB") =>
        "Free space on the disk of the log below which `/readyz` and the log warn.";
    "sinks": List(&Either(&Secret, &Keys(&[SINK]))), default("[]") =>
        "Systems that get a copy of every record: `stdout`, or a mapping with `syslog`, `otlp` or `postgres`. A sink reads \
         the files behind the gateway, so that a slow one costs no call.";
    "sign": Path =>
        "A file with an Ed25519 key (`toolward audit keygen`), with which the end of the log is signed every minute and \
         when a segment is closed.";
    "anchor": Path =>
        "A second place for signatures, such as a mounted disk of another machine: a file to which they are appended.";
}

table! { SINK:
    "syslog": Secret =>
        "A syslog receiver (RFC 5424): `tcp://HOST:PORT`, `tls://HOST:PORT` or `unix:PATH`.";
    "otlp": SecretUrl =>
        "A receiver of OTLP logs over HTTP with protobuf. `/v1/logs` is added to a URL without it.";
    "postgres": Secret =>
        "A PostgreSQL database: `postgres://USER:PASSWORD@HOST/DATABASE`. Beyond loopback it needs TLS, unless the URL has \
         `sslmode=disable`; `sslrootcert=PATH` names a private CA.";
    "name": NAME, default("the kind") =>
        "The sink's name in logs, metrics and the files with its position. Two sinks of one kind need names.";
    "max_lag": Duration, default("none") =>
        "Calls are refused while the sink is further behind than this. Without it, a sink never refuses a call.";
    "facility": Word(&[
        "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp",
        "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
    ]), default("audit") =>
        "The facility of syslog messages.";
    "headers": Table { key: "header", value: &Secret } =>
        "Headers of OTLP requests; `${NAME}` and `${file:PATH}` are replaced.";
    "table": NAME, default("toolward_audit") =>
        "The table in PostgreSQL, which is created if it does not exist.";
    "tls": Keys(&[SERVER_TLS]) =>
        "A private CA, and a client certificate, for `tls://` and `https://`.";
}

table! { ROTATE:
    "size": Size, default("256 MiB") =>
        "Maximum size of a segment.";
    "age": Duration, default("1 day") =>
        "Maximum age of a segment.";
}

table! { TELEMETRY:
    "otlp": SecretUrl =>
        "Where traces are sent: an OTLP receiver over HTTP with protobuf. `/v1/traces` is added to a URL without it.";
    "headers": Table { key: "header", value: &Secret } =>
        "Headers of OTLP requests; `${NAME}` and `${file:PATH}` are replaced.";
    "sample": Ratio, default("0") =>
        "The ratio of requests that are traced, among those whose client does not trace. A client that sends a sampled \
         `traceparent` is always followed.";
    "metrics": AddressOrSwitch, default("on") =>
        "Whether the `admin` address serves metrics at `/metrics`; or an address that serves nothing else. Beyond loopback, \
         that address needs `metrics_token`.";
    "metrics_token": Token =>
        "The bearer token that `telemetry.metrics` requires: its SHA-256 or a reference.";
    "labels": Keys(&[LABELS]) =>
        "Labels that metrics have.";
    "max_series": Integer { least: 1, most: 10_000 }, default("10000") =>
        "Maximum number of series of each metric; beyond it, names become `_OTHER`.";
    "log_format": Word(&["text", "json"]), default("text") =>
        "How log entries are written to standard error: lines of text, or one JSON object per line.";
    "log_level": Word(&["error", "warn", "info", "debug", "trace"]), default("info") =>
        "The least severe log entries that are written.";
}

table! { LABELS:
    "agent": Bool, default("true") =>
        "Whether metrics distinguish agents.";
    "tool": Bool, default("true") =>
        "Whether metrics distinguish tools and prompts.";
    "server": Bool, default("true") =>
        "Whether metrics of calls and decisions distinguish servers.";
}

table! { TEST:
    "as": Text("an agent") =>
        "The calling agent; without it, an unnamed caller.";
    "scope": Text("OAuth scopes, separated by spaces") =>
        "The scopes of the caller's token.";
    "allow": TEST_CALLS =>
        "Calls that must be allowed: `server/tool`, `server/tool {\"argument\": …}`, `prompt:server/name`, or \
         `resource:server/uri`.";
    "deny": TEST_CALLS =>
        "Calls that must be denied.";
    "ask": TEST_CALLS =>
        "Calls that must require approval by a person.";
    "hidden": TEST_CALLS =>
        "Tools, prompts and resources that must not be in the agent's list.";
    "never": Keys(&[NEVER]) =>
        "Calls that must never be allowed, also of tools that do not exist yet.";
}

table! { NEVER:
    "as": Name("an agent, or a pattern of agents"), default("everyone, and unnamed callers") =>
        "The calling agents.";
    "calls": List(&Name("a call such as `server/selector`")), required =>
        "Calls by their selector: `tracker/delete_*`, `*/hint:destructive`, `files/write.append`, \
         `prompt:server/name`, or `resource:server/uri`. The server may be a pattern, too.";
    "unless": Word(&["ask"]) =>
        "`ask`: calls that a person must approve are accepted.";
}
