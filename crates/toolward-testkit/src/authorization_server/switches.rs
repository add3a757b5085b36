//! Switches: in which ways the servers deviate from a plain, correct one.

use std::io;

use serde_json::{Map, Value};

/// Behavior of the authorization server. The default is a correct server with dynamic registration,
/// PKCE, `iss`, rotating refresh tokens and tokens of five minutes.
#[derive(Debug, Clone, PartialEq)]
pub struct Switches {
    /// Path of the issuer, such as `/tenant`. Read at start only.
    pub path: String,
    pub metadata: Metadata,
    /// The announced issuer, instead of the server's own.
    pub issuer: Option<String>,
    pub iss: Iss,
    pub pkce: Pkce,
    pub registration: Registration,
    /// Client id metadata documents.
    pub documents: Documents,
    /// Clients that exist without registration.
    pub clients: Vec<KnownClient>,
    /// The only redirect URIs that are accepted, at registration and authorization, compared exactly.
    pub redirect_uris: Option<Vec<String>>,
    /// Requests with `resource` are rejected, as by Entra.
    pub reject_resource: bool,
    /// Refreshes without the `resource` of the grant are rejected.
    pub refresh_needs_resource: bool,
    pub refresh: Refresh,
    /// Lifetime of access tokens in seconds.
    pub lifetime: f64,
    /// The announced `expires_in`, instead of `lifetime`. `null` omits the member.
    pub expires_in: Option<Value>,
    /// The announced access token, instead of a valid one.
    pub access_token: Option<Value>,
    pub token_type: Value,
    /// The granted scope, instead of the requested one.
    pub granted_scope: Option<String>,
    pub sign_in: SignIn,
    /// The person who signs in with `SignIn::Automatic` and approves devices.
    pub subject: String,
    /// The people in the sign-in form: one button each.
    pub subjects: Vec<String>,
    /// Access tokens are JWTs.
    pub jwt: bool,
    /// More claims of JWTs and id tokens.
    pub claims: Map<String, Value>,
    pub device: Device,
    pub revocation: Revocation,
    pub exchange: Exchange,
    /// Faults of the next token requests, first to last.
    pub token_faults: Vec<TokenFault>,
    /// Milliseconds that a token request takes.
    pub token_delay: u64,
    pub hold: Hold,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metadata {
    /// RFC 8414 and OIDC, with the path inserted and, for OIDC, also appended.
    Everywhere,
    /// Only `/.well-known/oauth-authorization-server`, with the path inserted.
    OAuth,
    /// Only `/.well-known/openid-configuration`, appended to the path.
    Oidc,
    /// Only `/.well-known/openid-configuration`, with the path inserted.
    OidcInserted,
    /// Only `/.well-known/oauth-authorization-server`, without the path.
    Root,
    Missing,
    /// 10 MB of valid JSON.
    Huge,
    /// A redirect to itself.
    Redirects,
    NotJson,
    /// The request is accepted and never answered.
    Silent,
}

/// `iss` in authorization responses (RFC 9207).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Iss {
    /// Announced and sent.
    Correct,
    /// Neither announced nor sent.
    Unsupported,
    /// Announced and not sent.
    Missing,
    /// Announced, and this value is sent.
    Wrong(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pkce {
    S256,
    /// Announces `plain` only.
    Plain,
    /// Announces nothing.
    Absent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    Open,
    /// Without an endpoint.
    Missing,
    /// The endpoint returns 422.
    Refused,
    /// Only clients with `token_endpoint_auth_method: none`, as at Notion.
    PublicOnly,
    /// Every client gets a secret and has to use it.
    Confidential,
    /// The endpoint exists, the clients are unknown at authorization.
    Forgets,
}

/// Client id metadata documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Documents {
    Absent,
    /// The document is fetched and compared with the request.
    Accepted,
    /// Announced, but authorization fails.
    Rejected,
    /// Announced and authorized, but the protected server rejects the tokens, as at Linear.
    TokensRejected,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownClient {
    pub id: String,
    pub secret: Option<String>,
    pub redirect_uris: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refresh {
    /// No refresh tokens.
    Never,
    /// The same refresh token each time, and not repeated in responses to refreshes.
    Fixed,
    /// A new one each time. If an old one is used, the grant is revoked.
    Rotating,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignIn {
    /// The authorization endpoint redirects at once.
    Automatic,
    /// An HTML page with a button for each of `subjects`, and one to deny.
    Page,
    /// The authorization endpoint redirects with `access_denied`.
    Denied,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    Absent,
    /// Approved from the second poll on.
    Approves,
    /// The first poll gets `slow_down`, the third is approved.
    SlowsDown,
    /// Approved by a button on the verification page.
    Page,
    Denies,
    Expires,
}

/// RFC 7009.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revocation {
    Absent,
    Supported,
    /// Status 503.
    Fails,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    Absent,
    Supported,
    /// `invalid_target`
    Refused,
}

/// An injected fault of one token request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenFault {
    /// A status and a body, and nothing happens.
    Status(u16, String),
    /// The connection is closed and nothing happens.
    CloseBefore,
    /// The request is carried out, and the connection is closed without a response.
    CloseAfter,
}

/// Where token requests wait until the switch is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    Nothing,
    /// Before anything happens.
    Before,
    /// After the request was carried out, before the response.
    After,
}

impl Default for Switches {
    fn default() -> Switches {
        Switches {
            path: String::new(),
            metadata: Metadata::Everywhere,
            issuer: None,
            iss: Iss::Correct,
            pkce: Pkce::S256,
            registration: Registration::Open,
            documents: Documents::Absent,
            clients: Vec::new(),
            redirect_uris: None,
            reject_resource: false,
            refresh_needs_resource: false,
            refresh: Refresh::Rotating,
            lifetime: 300.0,
            expires_in: None,
            access_token: None,
            token_type: "Bearer".into(),
            granted_scope: None,
            sign_in: SignIn::Automatic,
            subject: "alice".into(),
            subjects: vec!["alice".into(), "bob".into()],
            jwt: false,
            claims: Map::new(),
            device: Device::Absent,
            revocation: Revocation::Absent,
            exchange: Exchange::Absent,
            token_faults: Vec::new(),
            token_delay: 0,
            hold: Hold::Nothing,
        }
    }
}

impl Switches {
    /// Changes the switches that a JSON object names, as in `{"registration": "refused"}`.
    pub fn apply(&mut self, changes: &Value) -> io::Result<()> {
        for (name, value) in changes.as_object().ok_or_else(|| bad("switches", changes))? {
            self.set(name, value)?;
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &Value) -> io::Result<()> {
        let wrong = || bad(name, value);
        let text = || value.as_str().map(str::to_string).ok_or_else(wrong);
        let flag = || value.as_bool().ok_or_else(wrong);
        match name {
            "path" => self.path = text()?,
            "metadata" => {
                self.metadata = match &*text()? {
                    "everywhere" => Metadata::Everywhere,
                    "oauth" => Metadata::OAuth,
                    "oidc" => Metadata::Oidc,
                    "oidc-inserted" => Metadata::OidcInserted,
                    "root" => Metadata::Root,
                    "missing" => Metadata::Missing,
                    "huge" => Metadata::Huge,
                    "redirects" => Metadata::Redirects,
                    "not-json" => Metadata::NotJson,
                    "silent" => Metadata::Silent,
                    _ => return Err(wrong()),
                }
            }
            "issuer" => self.issuer = optional(value),
            "iss" => {
                self.iss = match (value["wrong"].as_str(), value.as_str()) {
                    (Some(other), _) => Iss::Wrong(other.into()),
                    (_, Some("correct")) => Iss::Correct,
                    (_, Some("unsupported")) => Iss::Unsupported,
                    (_, Some("missing")) => Iss::Missing,
                    _ => return Err(wrong()),
                }
            }
            "pkce" => {
                self.pkce = match &*text()? {
                    "S256" => Pkce::S256,
                    "plain" => Pkce::Plain,
                    "absent" => Pkce::Absent,
                    _ => return Err(wrong()),
                }
            }
            "registration" => {
                self.registration = match &*text()? {
                    "open" => Registration::Open,
                    "missing" => Registration::Missing,
                    "refused" => Registration::Refused,
                    "public-only" => Registration::PublicOnly,
                    "confidential" => Registration::Confidential,
                    "forgets" => Registration::Forgets,
                    _ => return Err(wrong()),
                }
            }
            "documents" => {
                self.documents = match &*text()? {
                    "absent" => Documents::Absent,
                    "accepted" => Documents::Accepted,
                    "rejected" => Documents::Rejected,
                    "tokens-rejected" => Documents::TokensRejected,
                    _ => return Err(wrong()),
                }
            }
            "clients" => {
                let client = |client: &Value| KnownClient {
                    id: optional(&client["id"]).unwrap_or_default(),
                    secret: optional(&client["secret"]),
                    redirect_uris: texts(&client["redirect_uris"]),
                };
                self.clients = value.as_array().ok_or_else(wrong)?.iter().map(client).collect();
            }
            "redirect_uris" => {
                self.redirect_uris = (!value.is_null()).then(|| texts(value));
            }
            "reject_resource" => self.reject_resource = flag()?,
            "refresh_needs_resource" => self.refresh_needs_resource = flag()?,
            "refresh" => {
                self.refresh = match &*text()? {
                    "never" => Refresh::Never,
                    "fixed" => Refresh::Fixed,
                    "rotating" => Refresh::Rotating,
                    _ => return Err(wrong()),
                }
            }
            "lifetime" => self.lifetime = value.as_f64().ok_or_else(wrong)?,
            "expires_in" => self.expires_in = Some(value.clone()),
            "access_token" => self.access_token = (!value.is_null()).then(|| value.clone()),
            "token_type" => self.token_type = value.clone(),
            "granted_scope" => self.granted_scope = optional(value),
            "sign_in" => {
                self.sign_in = match &*text()? {
                    "automatic" => SignIn::Automatic,
                    "page" => SignIn::Page,
                    "denied" => SignIn::Denied,
                    _ => return Err(wrong()),
                }
            }
            "subject" => self.subject = text()?,
            "subjects" => self.subjects = texts(value),
            "jwt" => self.jwt = flag()?,
            "claims" => self.claims = value.as_object().ok_or_else(wrong)?.clone(),
            "device" => {
                self.device = match &*text()? {
                    "absent" => Device::Absent,
                    "approves" => Device::Approves,
                    "slows-down" => Device::SlowsDown,
                    "page" => Device::Page,
                    "denies" => Device::Denies,
                    "expires" => Device::Expires,
                    _ => return Err(wrong()),
                }
            }
            "revocation" => {
                self.revocation = match &*text()? {
                    "absent" => Revocation::Absent,
                    "supported" => Revocation::Supported,
                    "fails" => Revocation::Fails,
                    _ => return Err(wrong()),
                }
            }
            "exchange" => {
                self.exchange = match &*text()? {
                    "absent" => Exchange::Absent,
                    "supported" => Exchange::Supported,
                    "refused" => Exchange::Refused,
                    _ => return Err(wrong()),
                }
            }
            "token_faults" => {
                let fault = |fault: &Value| match (fault["status"].as_u64(), fault.as_str()) {
                    (Some(status), _) => Ok(TokenFault::Status(
                        u16::try_from(status).map_err(|_| wrong())?,
                        fault["body"].as_str().unwrap_or_default().into(),
                    )),
                    (_, Some("close-before")) => Ok(TokenFault::CloseBefore),
                    (_, Some("close-after")) => Ok(TokenFault::CloseAfter),
                    _ => Err(wrong()),
                };
                let faults = value.as_array().ok_or_else(wrong)?.iter();
                self.token_faults = faults.map(fault).collect::<io::Result<_>>()?;
            }
            "token_delay" => self.token_delay = value.as_u64().ok_or_else(wrong)?,
            "hold" => {
                self.hold = match &*text()? {
                    "nothing" => Hold::Nothing,
                    "before" => Hold::Before,
                    "after" => Hold::After,
                    _ => return Err(wrong()),
                }
            }
            _ => return Err(bad("switches", &Value::from(name))),
        }
        Ok(())
    }
}

pub(super) fn optional(value: &Value) -> Option<String> {
    value.as_str().map(str::to_string)
}

pub(super) fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(optional).collect()
}

pub(super) fn bad(name: &str, value: &Value) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("`{name}` cannot be {value}"))
}
