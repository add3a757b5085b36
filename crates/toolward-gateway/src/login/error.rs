//! Errors of a login, by step.

/// Why a login, or a part of it, failed. It contains no token and no text that could contain one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginError {
    /// The step that failed: `discovery`, `registration`, `authorization`, `token`.
    pub step: &'static str,
    pub why: String,
    pub help: Option<String>,
}

impl LoginError {
    pub(crate) fn new(step: &'static str, why: impl Into<String>) -> LoginError {
        LoginError { step, why: why.into(), help: None }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> LoginError {
        self.help = Some(help.into());
        self
    }
}

impl std::fmt::Display for LoginError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.step, self.why)
    }
}

impl std::error::Error for LoginError {}

/// Error codes of RFC 6749, 7591, 8628 and 8707. Others are not repeated: a server could put anything there, even a
/// token that it received.
const KNOWN_CODES: [&str; 22] = [
    "access_denied",
    "authorization_pending",
    "consent_required",
    "expired_token",
    "interaction_required",
    "invalid_client",
    "invalid_client_metadata",
    "invalid_grant",
    "invalid_redirect_uri",
    "invalid_request",
    "invalid_scope",
    "invalid_software_statement",
    "invalid_target",
    "login_required",
    "server_error",
    "slow_down",
    "temporarily_unavailable",
    "unapproved_software_statement",
    "unauthorized_client",
    "unsupported_grant_type",
    "unsupported_response_type",
    "unsupported_token_type",
];

/// An error code as it may be shown.
pub(crate) fn known_code(code: &str) -> &'static str {
    KNOWN_CODES.into_iter().find(|known| *known == code).unwrap_or("an unknown error code")
}
