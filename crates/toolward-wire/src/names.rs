//! Member, `_meta` and header names of the protocol, and detection of their case variants.
//!
//! Some parsers ignore case. A message with both `Name` and `name` would name two different tools,
//! depending on the parser, so case variants of protocol members are rejected.
//!
//! Each list is sorted by frequency, most frequent first.

use crate::member_index::Section;
use crate::string::{equal_folded, fold};

pub(crate) const ENVELOPE: &[&str] = &["jsonrpc", "id", "method", "params", "result", "error"];

pub(crate) const ERROR: &[&str] = &["code", "message", "data"];

const PARAMS: &[&str] = &[
    "name",
    "arguments",
    "_meta",
    "uri",
    "cursor",
    "requestId",
    "progressToken",
    "progress",
    "total",
    "message",
    "reason",
    "taskId",
    "task",
    "inputResponses",
    "requestState",
    "inputRequests",
    "status",
    "ref",
    "argument",
    "context",
    "protocolVersion",
    "capabilities",
    "clientInfo",
    "notifications",
    "level",
    "logger",
    "data",
    "mode",
    "url",
    "elicitationId",
    "requestedSchema",
    "messages",
    "modelPreferences",
    "systemPrompt",
    "includeContext",
    "temperature",
    "maxTokens",
    "stopSequences",
    "metadata",
    "tools",
    "toolChoice",
];

const RESULT: &[&str] = &[
    "content",
    "resultType",
    "isError",
    "structuredContent",
    "_meta",
    "tools",
    "nextCursor",
    "ttlMs",
    "cacheScope",
    "inputRequests",
    "requestState",
    "prompts",
    "resources",
    "resourceTemplates",
    "task",
    "taskId",
    "protocolVersion",
    "supportedVersions",
    "capabilities",
    "serverInfo",
    "instructions",
];

/// The prefix of `_meta` keys reserved for the protocol.
pub const RESERVED_META: &str = "io.modelcontextprotocol/";

/// The extension for tasks of modern protocol versions, in `capabilities.extensions`.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Names of the HTTP headers introduced in 2026-07-28, in lower case.
pub mod header {
    pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
    pub const METHOD: &str = "mcp-method";
    pub const NAME: &str = "mcp-name";
    pub const PARAM_PREFIX: &str = "mcp-param-";
}

/// Keys of `_meta` objects.
pub mod meta {
    /// Keys that only the gateway writes. They are removed from messages in both directions.
    pub const OWN_PREFIX: &str = "io.toolward/";
    pub const PROGRESS_TOKEN: &str = "progressToken";
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
    pub const TRACE_PARENT: &str = "traceparent";
    pub const TRACE_STATE: &str = "tracestate";
    pub const BAGGAGE: &str = "baggage";
}

const META: &[&str] = &[
    meta::PROTOCOL_VERSION,
    meta::CLIENT_INFO,
    meta::CLIENT_CAPABILITIES,
    meta::PROGRESS_TOKEN,
    meta::LOG_LEVEL,
    meta::SUBSCRIPTION_ID,
    meta::SERVER_INFO,
    meta::RELATED_TASK,
    meta::TRACE_PARENT,
    meta::TRACE_STATE,
    meta::BAGGAGE,
];

/// Whether `key` differs only in case from a protocol member of the section. `key` must be UTF-8.
pub(crate) fn is_case_variant(section: Section, key: &[u8]) -> bool {
    match section {
        Section::Envelope => is_variant_of(ENVELOPE, key),
        Section::Params => is_variant_of(PARAMS, key),
        Section::Result => is_variant_of(RESULT, key),
        Section::Error => is_variant_of(ERROR, key),
        Section::ParamsMeta | Section::ResultMeta => {
            is_variant_of(META, key) || is_variant_of_reserved(key)
        }
    }
}

/// Whether an unescaped key is one of the gateway's own `_meta` keys, ignoring case.
#[inline]
pub(crate) fn is_own_key(key: &[u8]) -> bool {
    let prefix = meta::OWN_PREFIX.as_bytes();
    key.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Whether `key` differs only in case from one of `names`, which are ASCII.
pub(crate) fn is_variant_of(names: &[&str], key: &[u8]) -> bool {
    if names.iter().any(|name| name.as_bytes() == key) {
        return false;
    }
    if key.is_ascii() {
        return names.iter().any(|name| key.eq_ignore_ascii_case(name.as_bytes()));
    }
    let key = std::str::from_utf8(key).unwrap_or_default();
    names.iter().any(|name| equal_folded(name, key))
}

/// Whether `key` starts with a case variant of [`RESERVED_META`].
fn is_variant_of_reserved(key: &[u8]) -> bool {
    let Some(start) = key.get(..RESERVED_META.len()) else { return false };
    if start == RESERVED_META.as_bytes() {
        return false;
    }
    if key.is_ascii() {
        return start.eq_ignore_ascii_case(RESERVED_META.as_bytes());
    }
    fold(std::str::from_utf8(key).unwrap_or_default()).starts_with(RESERVED_META)
}
