//! Tokens of the gateway for a server: from client credentials, from the login of a person, or exchanged for
//! the caller's JWT (RFC 8693).
//!
//! A client's token is never sent to a server. With `exchange`, it is sent to the configured token endpoint.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hashbrown::HashMap;
use toolward_wire::Raw;

use crate::client::Claims;
use crate::clock;
use crate::http_client::{Address, fetch};
use crate::lock::LockUnpoisoned;
use crate::login::form::encoded;
use crate::login::grant::{Grant, Tokens};
use crate::login::source::{GrantSource, GrantSources, SourceError};
use crate::login::{LoginEvent, LoginSettings, NeedsLogin, Of, Secret};

/// The maximum size of a token endpoint's response.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// The timeout for fetching a token.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The lifetime of a token without `expires_in`.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(300);
/// The maximum time for which a token is cached.
const MAX_LIFETIME: Duration = Duration::from_secs(86_400);
/// A token is renewed this long before it expires, or after three quarters of its lifetime if that
/// is later.
const RENEW_AHEAD: Duration = Duration::from_secs(30);
/// The time between attempts after a failure. It doubles with each failure, up to the maximum.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// The interval at which the login of a cached token is read again: someone may have logged out, or in as somebody else.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A server that rejects every token must not cause a refresh with each request.
const REJECTION_INTERVAL: Duration = Duration::from_secs(10);

/// The time for which a server that needs a login is not asked without one again.
const CHALLENGE_INTERVAL: Duration = Duration::from_secs(60);

/// The source of tokens for a server.
pub struct OAuth {
    source: Source,
    held: Mutex<TokenState>,
    /// Serializes token requests.
    asking: tokio::sync::Mutex<()>,
}

enum Source {
    ClientCredentials(ClientCredentials),
    /// The logins of agents. Requests use the source of one of them.
    Logins(GrantSources, Mutex<Vec<(Option<String>, Arc<OAuth>)>>),
    Login(Arc<GrantSource>),
    /// Tokens that are exchanged for callers' JWTs. Requests use the source of one holder.
    Exchanges(ClientCredentials, Mutex<HashMap<Arc<Claims>, Arc<OAuth>>>),
    Exchange(ClientCredentials, Arc<Claims>),
}

/// The maximum number of holders whose exchanged tokens are cached, for each server.
const MAX_HOLDERS: usize = 4096;
const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// Client credentials of the gateway.
#[derive(Clone, PartialEq)]
struct ClientCredentials {
    endpoint: Address,
    /// As an `Authorization` header.
    client: String,
    form: String,
}

#[derive(Default)]
struct TokenState {
    token: Option<Token>,
    failed: Option<Failure>,
    /// A token of a login that the server rejected.
    rejected: Option<Secret>,
    /// When a token was rejected for the last time.
    rejected_at: Option<Instant>,
    /// When the server rejected a request without a token, because no one has logged in.
    challenged_at: Option<Instant>,
}

#[derive(Clone)]
struct Failure {
    at: Instant,
    count: u32,
    why: AskError,
    /// The login that it is about.
    login: String,
}

impl Failure {
    fn is_recent(&self) -> bool {
        let interval = RETRY_INTERVAL * 2_u32.saturating_pow(self.count.min(6));
        self.at.elapsed() < interval.min(MAX_RETRY_INTERVAL)
    }
}

#[derive(Clone)]
enum AskError {
    NeedsLogin(NeedsLogin),
    Failed(String),
}

impl From<AskError> for io::Error {
    fn from(error: AskError) -> io::Error {
        match error {
            AskError::NeedsLogin(needs) => io::Error::new(io::ErrorKind::PermissionDenied, needs),
            AskError::Failed(why) => {
                let why = format!("failed to get a token for it: {why}");
                io::Error::new(io::ErrorKind::PermissionDenied, why)
            }
        }
    }
}

/// The missing login that caused an error, if that is its cause.
pub(super) fn needs_login(error: &io::Error) -> Option<&NeedsLogin> {
    error.get_ref()?.downcast_ref()
}

#[derive(Clone)]
struct Token {
    /// The value of `Authorization`.
    header: Arc<str>,
    renew: Instant,
    until: Instant,
    /// The login that it belongs to, and when that was read.
    login: Option<(Arc<str>, Instant)>,
}

impl OAuth {
    /// `resource` is the address of the server that the tokens are for.
    pub fn new(
        endpoint: Address,
        client_id: &str,
        client_secret: &str,
        scope: Option<&str>,
        resource: &str,
    ) -> OAuth {
        let mut form = format!("grant_type=client_credentials&resource={}", encoded(resource));
        if let Some(scope) = scope {
            form += &format!("&scope={}", encoded(scope));
        }
        let client = basic(client_id, client_secret);
        OAuth::from(Source::ClientCredentials(ClientCredentials { endpoint, client, form }))
    }

    /// Tokens that are exchanged for the JWT of the caller: for `audience`, or else for the server at
    /// `resource`.
    pub fn exchange(
        endpoint: Address,
        (client_id, client_secret): (&str, &str),
        scope: Option<&str>,
        audience: Option<&str>,
        resource: &str,
    ) -> OAuth {
        let mut form = format!(
            "grant_type={}&subject_token_type={1}&requested_token_type={1}",
            encoded(EXCHANGE),
            encoded(ACCESS_TOKEN)
        );
        form += &match audience {
            Some(audience) => format!("&audience={}", encoded(audience)),
            None => format!("&resource={}", encoded(resource)),
        };
        if let Some(scope) = scope {
            form += &format!("&scope={}", encoded(scope));
        }
        let client = basic(client_id, client_secret);
        let credentials = ClientCredentials { endpoint, client, form };
        OAuth::from(Source::Exchanges(credentials, Mutex::default()))
    }

    pub(super) fn exchanges(&self) -> bool {
        matches!(self.source, Source::Exchanges(..) | Source::Exchange(..))
    }

    /// Tokens of logins, in the state directory of the settings.
    pub fn login(settings: LoginSettings) -> OAuth {
        OAuth::from(Source::Logins(GrantSources::new(settings), Mutex::default()))
    }

    fn from(source: Source) -> OAuth {
        OAuth { source, held: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    /// The settings of the login, if tokens come from one.
    pub fn login_settings(&self) -> Option<&LoginSettings> {
        match &self.source {
            Source::ClientCredentials(_) | Source::Exchanges(..) | Source::Exchange(..) => None,
            Source::Logins(sources, _) => Some(sources.settings()),
            Source::Login(source) => Some(source.settings()),
        }
    }

    /// Whether each agent has a login of its own.
    pub(super) fn is_personal(&self) -> bool {
        self.login_settings().is_some_and(|settings| settings.of == Of::Agent)
    }

    /// The source of an agent's tokens.
    pub(super) fn of(
        self: &Arc<Self>,
        agent: Option<&str>,
        holder: Option<&Arc<Claims>>,
    ) -> Arc<OAuth> {
        if let (Source::Exchanges(credentials, known), Some(holder)) = (&self.source, holder) {
            let mut known = known.locked();
            if known.len() >= MAX_HOLDERS && !known.contains_key(holder) {
                known.retain(|_, oauth| oauth.known().is_some());
                if known.len() >= MAX_HOLDERS {
                    known.clear();
                }
            }
            let own = || Source::Exchange(credentials.clone(), holder.clone());
            let oauth = known.entry(holder.clone());
            return oauth.or_insert_with(|| Arc::new(OAuth::from(own()))).clone();
        }
        let Source::Logins(sources, known) = &self.source else { return self.clone() };
        let source = sources.of(agent);
        let mut known = known.locked();
        let owner = source.owner();
        if let Some((_, oauth)) = known.iter().find(|(known, _)| known.as_deref() == owner) {
            return oauth.clone();
        }
        let owner = owner.map(str::to_owned);
        let oauth = Arc::new(OAuth::from(Source::Login(source)));
        known.push((owner, oauth.clone()));
        oauth
    }

    /// Identifies the credentials, for the names of stored lists.
    pub(super) fn credentials(&self) -> String {
        match &self.source {
            Source::ClientCredentials(credentials) => credentials.client.clone(),
            Source::Exchange(credentials, holder) => {
                format!("{} {} {:?}", credentials.client, credentials.form, holder.digest())
            }
            Source::Logins(..) | Source::Exchanges(..) => String::new(),
            Source::Login(source) => {
                source.grant().ok().flatten().map(|grant| grant.id).unwrap_or_default()
            }
        }
    }

    /// The logins that exist, for reports.
    pub fn grants(&self) -> Vec<Grant> {
        let sources = match &self.source {
            Source::Logins(sources, _) => sources.all(),
            Source::Login(source) => vec![source.clone()],
            _ => Vec::new(),
        };
        sources.iter().filter_map(|source| source.grant().ok().flatten()).collect()
    }

    /// The login that is missing. With a login for each agent, that of an agent that used the server.
    pub fn needs_login(&self) -> Option<NeedsLogin> {
        match &self.source {
            Source::ClientCredentials(_) | Source::Exchanges(..) | Source::Exchange(..) => None,
            Source::Login(source) if source.has_no_grant() => {
                self.held().challenged_at.and_then(|_| source.needs_login())
            }
            Source::Login(source) => source.needs_login().or_else(|| self.rejected_login()),
            Source::Logins(sources, known) => {
                let known = known.locked().clone();
                if known.is_empty() && sources.settings().of == Of::Gateway {
                    // Whether it needs one is known after the first request.
                    let source = sources.of(None);
                    return source.needs_login().filter(|_| !source.has_no_grant());
                }
                known.iter().find_map(|(_, oauth)| oauth.needs_login())
            }
        }
    }

    /// The login, if the authorization server rejected it without ending it.
    fn rejected_login(&self) -> Option<NeedsLogin> {
        let failed = self.held().failed.clone()?;
        match failed.why {
            AskError::NeedsLogin(needs) if failed.login == self.credentials() => Some(needs),
            _ => None,
        }
    }

    /// Events of logins that have not been recorded yet.
    pub(super) fn take_events(&self) -> Vec<LoginEvent> {
        match &self.source {
            Source::Logins(sources, _) => {
                sources.all().iter().flat_map(|source| source.events.take()).collect()
            }
            Source::Login(source) => source.events.take(),
            _ => Vec::new(),
        }
    }

    /// Waits until no login is being refreshed, so that none is lost when the process ends.
    pub(super) async fn settled(&self) {
        if let Source::Logins(sources, _) = &self.source {
            for source in sources.all() {
                source.settled().await;
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, TokenState> {
        self.held.locked()
    }

    /// The value of `Authorization`, from a cached token or a new one.
    pub(crate) async fn authorization(&self) -> io::Result<Arc<str>> {
        if let Some(header) = self.fresh() {
            return Ok(header);
        }
        let _one = self.asking.lock().await;
        // Another task may have fetched one in the meantime.
        if let Some(header) = self.fresh() {
            return Ok(header);
        }
        let failed = self.held().failed.clone().filter(Failure::is_recent);
        // Somebody may have logged in again.
        let failed = failed.filter(|failed| failed.login == self.credentials());
        let asked = match failed {
            Some(failed) => Err((failed.why, false)),
            None => self.ask().await,
        };
        let mut held = self.held();
        match asked {
            Ok(token) => {
                let header = token.header.clone();
                (held.token, held.failed, held.rejected) = (Some(token), None, None);
                Ok(header)
            }
            Err((why, is_new)) => {
                if is_new {
                    let count = held.failed.as_ref().map_or(0, |failed| failed.count + 1);
                    let (at, why, login) = (Instant::now(), why.clone(), self.credentials());
                    held.failed = Some(Failure { at, count, why, login });
                }
                if matches!(why, AskError::NeedsLogin(_)) {
                    held.token = None;
                    return Err(why.into());
                }
                // The old token is valid until it expires.
                let old = held.token.as_ref().filter(|token| Instant::now() < token.until);
                old.map(|token| token.header.clone()).ok_or_else(|| why.into())
            }
        }
    }

    /// Whether requests are sent without a token: no one has logged in, and the server has not asked for it recently.
    pub(super) fn may_do_without(&self) -> bool {
        let Source::Login(source) = &self.source else { return false };
        let is_recent = |at: Instant| at.elapsed() < CHALLENGE_INTERVAL;
        !self.held().challenged_at.is_some_and(is_recent) && source.has_no_grant()
    }

    /// The server rejected a request without a token. An error if that is because no one has logged in.
    pub(super) fn challenged(&self) -> io::Result<()> {
        let Source::Login(source) = &self.source else { return Ok(()) };
        match source.needs_login().filter(|_| source.has_no_grant()) {
            Some(needs) => {
                self.held().challenged_at = Some(Instant::now());
                Err(AskError::NeedsLogin(needs).into())
            }
            None => Ok(()),
        }
    }

    /// The server accepted a request without a token.
    pub(super) fn accepted_without_token(&self) {
        self.held().challenged_at = None;
    }

    /// The value of `Authorization`, if a token is cached.
    pub(crate) fn known(&self) -> Option<Arc<str>> {
        let held = self.held();
        let token = held.token.as_ref().filter(|token| Instant::now() < token.until)?;
        Some(token.header.clone())
    }

    /// The login that the cached token belongs to.
    pub(super) fn login_id(&self) -> Option<Arc<str>> {
        Some(self.held().token.as_ref()?.login.as_ref()?.0.clone())
    }

    /// The value of `Authorization`, if a token is cached and need not be renewed yet.
    pub(super) fn fresh(&self) -> Option<Arc<str>> {
        let mut held = self.held();
        let now = Instant::now();
        let token = held.token.as_mut().filter(|token| now < token.renew)?;
        if let (Some((id, read)), Source::Login(source)) = (&mut token.login, &self.source)
            && now.duration_since(*read) >= CHECK_INTERVAL
        {
            *read = now;
            let grant = source.grant().ok().flatten().filter(|grant| grant.lost().is_none());
            if grant.is_none_or(|grant| *grant.id != **id) {
                held.token = None;
                return None;
            }
        }
        Some(token.header.clone())
    }

    /// Discards a token that the server rejected.
    pub(crate) fn refused(&self, header: &str) {
        let mut held = self.held();
        if held.token.as_ref().is_none_or(|token| *token.header != *header) {
            return;
        }
        if matches!(self.source, Source::Login(_)) {
            let recently = held.rejected_at.is_some_and(|at| at.elapsed() < REJECTION_INTERVAL);
            if recently {
                return;
            }
            held.rejected = header.strip_prefix("Bearer ").map(Secret::new);
            held.rejected_at = Some(Instant::now());
            held.failed = None;
        }
        held.token = None;
    }

    /// Gets a token. The error tells whether the same request should not be repeated at once.
    async fn ask(&self) -> Result<Token, (AskError, bool)> {
        match &self.source {
            Source::ClientCredentials(credentials) => {
                let asked = credentials.ask(&credentials.form).await;
                asked.map_err(|why| (AskError::Failed(why), true))
            }
            Source::Exchange(credentials, holder) => {
                // Not a failure of the endpoint: the next request may bring a JWT.
                let expired =
                    "the caller's JWT has expired, so that no token can be exchanged for it";
                let failed = |why: String, again: bool| (AskError::Failed(why), again);
                let jwt = holder.token().ok_or_else(|| failed(expired.into(), false))?;
                let form = format!("{}&subject_token={}", credentials.form, encoded(&jwt));
                credentials.ask(&form).await.map_err(|why| failed(why, true))
            }
            Source::Exchanges(..) => {
                let why = "its tokens are exchanged for the caller's JWT, and the caller has none";
                Err((AskError::Failed(why.into()), false))
            }
            Source::Login(source) => {
                let rejected = self.held().rejected.clone();
                match source.tokens(rejected).await {
                    Ok((tokens, id)) => Ok(Token::of_login(&tokens, id.into())),
                    Err(SourceError::NeedsLogin(needs, asked)) => {
                        Err((AskError::NeedsLogin(needs), asked))
                    }
                    Err(SourceError::Failed(why)) => Err((AskError::Failed(why), true)),
                }
            }
            Source::Logins(..) => {
                let why = "internal error: the agent of the login is not known";
                Err((AskError::Failed(why.into()), true))
            }
        }
    }
}

impl Token {
    fn of_login(tokens: &Tokens, id: Arc<str>) -> Token {
        let now = Instant::now();
        let (renew, until) = tokens.remaining(clock::seconds());
        let after = |seconds: u64| now + Duration::from_secs(seconds).min(MAX_LIFETIME);
        let header = format!("Bearer {}", tokens.access.expose()).into();
        Token { header, renew: after(renew), until: after(until), login: Some((id, now)) }
    }
}

/// Client credentials as an `Authorization` header. RFC 6749 requires both to be form-encoded in it.
fn basic(client_id: &str, client_secret: &str) -> String {
    let pair = format!("{}:{}", encoded(client_id), encoded(client_secret));
    format!("Basic {}", STANDARD.encode(pair))
}

impl ClientCredentials {
    /// Requests a token.
    async fn ask(&self, form: &str) -> Result<Token, String> {
        match tokio::time::timeout(FETCH_TIMEOUT, self.request(form)).await {
            Ok(asked) => asked,
            Err(_) => Err("the token endpoint timed out".into()),
        }
    }

    async fn request(&self, form: &str) -> Result<Token, String> {
        let fields = [("Authorization", self.client.as_str())];
        let answer = fetch::post_form(&self.endpoint, &fields, form, MAX_RESPONSE_BYTES);
        let answer = answer.await.map_err(|error| error.to_string())?;
        if answer.status != 200 {
            return Err(format!("the token endpoint returned status {}", answer.status));
        }
        let bad = |what: &str| format!("the token endpoint's response {what}");
        let body =
            Raw::scan(&answer.body, MAX_RESPONSE_BYTES).map_err(|error| bad(&error.to_string()))?;
        let text = |name: &str| body.member(name).and_then(Raw::as_str);
        if !text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
            return Err(bad("is not a bearer token"));
        }
        let token = text("access_token").filter(|token| !token.is_empty());
        let token = token.filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic()));
        let token = token.ok_or_else(|| bad("has no token"))?;
        let seconds = body.member("expires_in").and_then(Raw::as_i64);
        let lasts = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let lasts = lasts
            .map_or(DEFAULT_LIFETIME, |seconds| Duration::from_secs(seconds).min(MAX_LIFETIME));
        let now = Instant::now();
        Ok(Token {
            header: format!("Bearer {token}").into(),
            renew: now + lasts - RENEW_AHEAD.min(lasts / 4),
            until: now + lasts,
            login: None,
        })
    }
}

/// Equal if they request the same token from the same endpoint; cached tokens do not matter.
impl PartialEq for OAuth {
    fn eq(&self, other: &OAuth) -> bool {
        match (&self.source, &other.source) {
            (Source::ClientCredentials(one), Source::ClientCredentials(two))
            | (Source::Exchanges(one, _), Source::Exchanges(two, _)) => one == two,
            (Source::Exchange(one, of), Source::Exchange(two, other)) => one == two && of == other,
            _ if self.login_settings().is_none() => false,
            _ => self.login_settings() == other.login_settings(),
        }
    }
}

/// Prints nothing, because all of it is secret.
impl std::fmt::Debug for OAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OAuth(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_credentials_are_form_encoded() {
        let endpoint = Address::parse("https://id.example/token").unwrap();
        let oauth = OAuth::new(endpoint, "gate:1", "s p", Some("a b"), "https://s.example/mcp");
        let Source::ClientCredentials(credentials) = &oauth.source else { panic!() };
        assert_eq!(credentials.client, format!("Basic {}", STANDARD.encode("gate%3A1:s+p")));
        assert_eq!(
            credentials.form,
            "grant_type=client_credentials&resource=https%3A%2F%2Fs.example%2Fmcp&scope=a+b"
        );
    }
}
