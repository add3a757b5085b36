//! Logins: OAuth on behalf of a person, for servers that need it.
//!
//! `toolward login` discovers the authorization server of a server, registers a client, lets a person log in with a
//! browser, and stores the grant. The gateway uses and refreshes it. Only `login` opens a browser, never a call.
//!
//! | module | contains |
//! |---|---|
//! | [`settings`] | the configuration |
//! | `network` | requests to addresses that a server chose, with limits |
//! | `challenge`, `discovery` | from a server's URL to its authorization server |
//! | `registration`, `registered` | how the gateway gets a client id, and keeps it |
//! | `authorization`, `device`, `callback` | the flows |
//! | `token`, `form` | requests to a token endpoint |
//! | [`grant`], [`store`] | the result of a login, and where it is kept |
//! | `logout` | removes a grant, and revokes its tokens |
//! | `source` | the access token for a request, refreshed if necessary |
//! | [`events`] | what happened, for the audit log |

mod authorization;
mod callback;
mod challenge;
mod device;
pub(crate) mod discovery;
mod error;
pub mod events;
pub(crate) mod form;
pub mod grant;
mod logout;
pub(crate) mod network;
mod registered;
mod registration;
mod secret;
pub mod settings;
pub(crate) mod source;
pub mod store;
mod token;

use std::io;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use self::authorization::{Authorization, Refused};
use self::callback::Callback;
pub use self::callback::{Verdict, deliver};
use self::device::DeviceCode;
use self::discovery::{Discovered, discover, origin, same_issuer};
pub use self::error::LoginError;
pub use self::events::LoginEvent;
use self::grant::{Client, Grant};
pub use self::logout::{RemovedGrant, Revocation, logout};
use self::network::shown;
pub use self::secret::Secret;
pub use self::settings::{Flow, LoginSettings, Of, Resource};
pub use self::source::NeedsLogin;
use self::store::{GrantKey, GrantStore};
use self::token::Issued;
use crate::random;

/// How long a login waits for the person.
const PERSON_TIMEOUT: Duration = Duration::from_secs(600);

/// A login that waits for a person.
pub struct Login {
    settings: LoginSettings,
    key: GrantKey,
    discovered: Discovered,
    client: Client,
    /// The client was registered dynamically.
    is_registered: bool,
    scope: Option<String>,
    resource: Option<String>,
    step: Step,
}

enum Step {
    Code(Box<Authorization>, Option<Callback>, String),
    Device(DeviceCode),
}

/// The task of the person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Open an address; the response arrives by itself. `shared`: a running gateway receives it.
    Open { url: String, shared: bool },
    /// Open an address, and paste the one that the browser ends at.
    Paste { url: String },
    /// Open an address, and enter a code.
    Enter { url: String, code: String, complete: Option<String> },
}

impl Login {
    /// Discovers, registers, and prepares the flow.
    pub async fn begin(
        settings: LoginSettings,
        owner: Option<String>,
    ) -> Result<Login, LoginError> {
        let discovered = discover(&settings).await?;
        check_issuer(&settings, &discovered)?;
        let (client, is_registered) = registration::client(&settings, &discovered).await?;
        let scope = scope(&settings, &discovered);
        let resource = resource(&settings, &discovered);
        let asked = (scope.as_deref(), resource.as_deref());
        let step = match settings.flow {
            Flow::Device => Step::Device(device::begin(&discovered, &client, asked).await?),
            Flow::Browser | Flow::Paste => {
                code_step(&settings, &discovered, &client, asked).await?
            }
        };
        let key = GrantKey { server: settings.server.clone(), owner };
        Ok(Login { settings, key, discovered, client, is_registered, scope, resource, step })
    }

    /// The authorization server.
    pub fn issuer(&self) -> &str {
        &self.discovered.server.issuer
    }

    pub fn task(&self) -> Task {
        match &self.step {
            Step::Code(_, Some(callback), url) => {
                Task::Open { url: url.clone(), shared: callback.is_inbox() }
            }
            Step::Code(_, None, url) => Task::Paste { url: url.clone() },
            Step::Device(code) => Task::Enter {
                url: code.address.clone(),
                code: code.user_code.clone(),
                complete: code.complete_address.clone(),
            },
        }
    }

    /// Waits for the person, and stores the grant.
    pub async fn wait(mut self) -> Result<Grant, LoginError> {
        let late = || {
            LoginError::new("authorization", "no one logged in within ten minutes")
                .help("log in again; with --paste if the browser is on another machine")
        };
        let issued = match &mut self.step {
            Step::Device(code) => {
                code.poll(&self.discovered, &self.client, self.resource.as_deref()).await?
            }
            Step::Code(_, None, _) => {
                let why = "internal error: the response has to be pasted";
                return Err(LoginError::new("authorization", why));
            }
            Step::Code(authorization, Some(callback), _) => {
                let code = response(authorization, callback);
                let code = tokio::time::timeout(PERSON_TIMEOUT, code).await;
                let code = code.unwrap_or_else(|_| Err(late()))?;
                let verifier = authorization.verifier.clone();
                self.exchange(&code, &verifier).await?
            }
        };
        self.store(issued).await
    }

    /// The same with the address that the browser ended at, or only its query.
    pub async fn paste(self, pasted: &str) -> Result<Grant, LoginError> {
        let pasted = pasted.trim();
        let query = pasted.split_once('?').map_or(pasted, |(_, query)| query);
        let query = query.split('#').next().unwrap_or_default();
        let Step::Code(authorization, ..) = &self.step else {
            return Err(LoginError::new("authorization", "there is nothing to paste"));
        };
        let code = authorization.code(query).map_err(|refused| match refused {
            Refused::Failed(error) => error,
            Refused::Foreign => {
                let why = "the address does not belong to this login";
                let help = "copy the whole address from the browser's address bar, with `code` and `state`";
                LoginError::new("authorization", why).help(help)
            }
        })?;
        let issued = self.exchange(&code, &authorization.verifier).await?;
        self.store(issued).await
    }

    async fn exchange(&self, code: &Secret, verifier: &Secret) -> Result<Issued, LoginError> {
        let mut all = vec![
            ("grant_type", "authorization_code"),
            ("code", code.expose()),
            ("redirect_uri", self.settings.redirect.as_str()),
            ("code_verifier", verifier.expose()),
        ];
        all.extend(self.resource.as_deref().map(|resource| ("resource", resource)));
        let endpoint = &self.discovered.server.token_endpoint;
        let issued = token::request(&self.discovered.network, endpoint, &self.client, &all).await;
        issued.map_err(|error| {
            let help = match error {
                token::TokenError::Rejected("invalid_target" | "invalid_request") => Some(
                    "if the provider does not know `resource`, set `login: { resource: false }`",
                ),
                token::TokenError::Rejected("invalid_client") => {
                    Some("check `login.client_id` and `login.client_secret`")
                }
                _ => None,
            };
            let failed = LoginError::new("token", error.to_string());
            help.map_or(failed.clone(), |help| failed.help(help))
        })
    }

    async fn store(&self, issued: Issued) -> Result<Grant, LoginError> {
        let failed = |error: io::Error| LoginError::new("store", error.to_string());
        let grant = Grant {
            id: random_id().map_err(failed)?,
            server: self.key.server.clone(),
            owner: self.key.owner.clone(),
            origin: origin(&self.settings.address),
            zone: self.discovered.network.zone(),
            issuer: self.discovered.server.issuer.clone(),
            token_endpoint: self.discovered.server.token_endpoint.clone(),
            revocation_endpoint: self.discovered.server.revocation_endpoint.clone(),
            client: self.client.clone(),
            redirect: self.settings.redirect.clone(),
            resource: self.resource.clone(),
            scope: issued.scope.or_else(|| self.scope.clone()),
            tokens: Some(issued.tokens),
            refreshes: 0,
            lost: None,
        };
        let store = GrantStore::in_state(&self.settings.state);
        let lock = store.lock(&self.key).await.map_err(failed)?;
        store.save(&lock, &self.key, &grant).map_err(failed)?;
        drop(lock);
        if self.is_registered {
            registered::keep(&self.settings, &self.discovered, &self.client).await;
        }
        Ok(grant)
    }
}

/// A server must not obtain tokens of an authorization server that belongs to another server, unless the configuration
/// states that both use it: not every authorization server limits its tokens to one resource.
fn check_issuer(settings: &LoginSettings, discovered: &Discovered) -> Result<(), LoginError> {
    let issuer = &discovered.server.issuer;
    if settings.issuer.as_ref().is_some_and(|own| same_issuer(own, issuer)) {
        return Ok(());
    }
    let own = origin(&settings.address);
    let grants = GrantStore::in_state(&settings.state).all();
    let grants = grants.map_err(|error| LoginError::new("store", error.to_string()))?;
    let other =
        grants.iter().find(|grant| same_issuer(&grant.issuer, issuer) && grant.origin != own);
    match other {
        None => Ok(()),
        Some(other) => {
            let (server, issuer) = (&settings.server, shown(issuer));
            let why = format!(
                "`{server}` asks for a login at {issuer}, the authorization server of your server `{}`: \
                 its token might be accepted there, too",
                other.server
            );
            let help = format!(
                "if both servers belong to the same provider, set `login: {{ issuer: \"{issuer}\" }}` for `{server}`"
            );
            Err(LoginError::new("discovery", why).help(help))
        }
    }
}

/// Prepares the code flow.
async fn code_step(
    settings: &LoginSettings,
    discovered: &Discovered,
    client: &Client,
    asked: (Option<&str>, Option<&str>),
) -> Result<Step, LoginError> {
    let server = &discovered.server;
    let failed = |why: String| LoginError::new("authorization", why);
    let missing = "the authorization server has no `authorization_endpoint`";
    let endpoint = server.authorization_endpoint.as_deref();
    let endpoint = endpoint.ok_or_else(|| failed(missing.into()))?;
    if !server.supports_pkce {
        let why =
            "the authorization server does not support PKCE with S256, which protects the code";
        let help = "ask its operator, or use a token in `headers`";
        return Err(LoginError::new("discovery", why).help(help));
    }
    let authorization = Authorization::new(&server.issuer, server.sends_issuer);
    let authorization = authorization.map_err(|error| failed(error.to_string()))?;
    let url = authorization.url(endpoint, (&client.id, &settings.redirect), asked);
    let callback = match settings.flow {
        Flow::Browser => {
            let opened = Callback::open(&settings.redirect, &settings.state, authorization.state());
            let cannot = |error: io::Error| {
                failed(format!("cannot listen on {}: {error}", settings.redirect))
                    .help("use --paste")
            };
            Some(opened.await.map_err(cannot)?)
        }
        Flow::Paste | Flow::Device => None,
    };
    Ok(Step::Code(Box::new(authorization), callback, url))
}

/// Waits for the response that belongs to a login. Others are answered and ignored.
async fn response(
    authorization: &Authorization,
    callback: &mut Callback,
) -> Result<Secret, LoginError> {
    loop {
        let arrived = callback.next().await;
        let arrived = arrived.map_err(|e| LoginError::new("authorization", e.to_string()))?;
        match authorization.code(&arrived.query) {
            Ok(code) => {
                arrived.answer(Verdict::Accepted).await;
                return Ok(code);
            }
            Err(Refused::Foreign) => arrived.answer(Verdict::Foreign).await,
            Err(Refused::Failed(error)) => {
                arrived.answer(Verdict::Failed).await;
                return Err(error);
            }
        }
    }
}

/// The scopes to request: configured, else what the server asks for.
fn scope(settings: &LoginSettings, discovered: &Discovered) -> Option<String> {
    let scope = settings.scope.clone().or_else(|| discovered.scope.clone());
    // Many providers issue refresh tokens only for this scope.
    let offline = discovered.server.has_offline_access && settings.scope.is_none();
    match scope {
        Some(scope) if offline && !scope.split(' ').any(|one| one == "offline_access") => {
            Some(format!("{scope} offline_access"))
        }
        scope => scope,
    }
}

/// The resource to request tokens for.
fn resource(settings: &LoginSettings, discovered: &Discovered) -> Option<String> {
    let exception = registration::exception(&discovered.server.issuer);
    match &settings.resource {
        Resource::Omitted => None,
        Resource::Configured(resource) => Some(resource.clone()),
        Resource::Discovered if exception.is_some_and(|one| one.rejects_resource) => None,
        Resource::Discovered => Some(discovered.resource.clone()),
    }
}

fn random_id() -> io::Result<String> {
    let mut bytes = [0; 16];
    random::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
