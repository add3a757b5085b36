//! The member names of the protocol, to find those that differ from one only in case. Some readers
//! fold case: `Name` beside `name` would be two tools, depending on who reads.

use crate::scan::Section;
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
    "_meta",
    "resultType",
    "inputRequests",
    "requestState",
    "tools",
    "prompts",
    "resources",
    "resourceTemplates",
    "nextCursor",
    "ttlMs",
    "cacheScope",
    "content",
    "structuredContent",
    "isError",
    "task",
    "taskId",
    "protocolVersion",
    "supportedVersions",
    "capabilities",
    "serverInfo",
    "instructions",
];

/// The prefix of the protocol's own `_meta` keys.
pub const RESERVED_META: &str = "io.modelcontextprotocol/";

/// Keys of `_meta`.
pub mod meta {
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
    meta::PROGRESS_TOKEN,
    meta::PROTOCOL_VERSION,
    meta::CLIENT_INFO,
    meta::CLIENT_CAPABILITIES,
    meta::LOG_LEVEL,
    meta::SUBSCRIPTION_ID,
    meta::SERVER_INFO,
    meta::RELATED_TASK,
    meta::TRACE_PARENT,
    meta::TRACE_STATE,
    meta::BAGGAGE,
];

/// Whether `key` is a case variant of a protocol member of that section.
pub(crate) fn is_case_variant(section: Section, key: &str) -> bool {
    match section {
        Section::Envelope => is_variant_of(ENVELOPE, key),
        Section::Params => is_variant_of(PARAMS, key),
        Section::Result => is_variant_of(RESULT, key),
        Section::Error => is_variant_of(ERROR, key),
        Section::ParamsMeta | Section::ResultMeta => {
            is_variant_of(META, key)
                || (key.len() >= RESERVED_META.len()
                    && !key.starts_with(RESERVED_META)
                    && fold(key).starts_with(RESERVED_META))
        }
    }
}

pub(crate) fn is_variant_of(words: &[&str], key: &str) -> bool {
    !words.contains(&key) && words.iter().any(|word| equal_folded(word, key))
}
