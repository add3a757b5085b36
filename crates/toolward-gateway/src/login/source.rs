//! The access token of a login, refreshed when necessary.
//!
//! One refresh of a grant runs at a time, within the process and across processes: under the lock of the grant, it is
//! read again first, and only if it still needs a refresh is one requested. The new tokens are stored before they are
//! used. Only `invalid_grant` for the newest refresh token ends a login; after any other error the old access token is
//! used until it expires.
//!
//! A refresh runs on a thread of its own, so that it is never abandoned half-way because a client disconnected: an
//! authorization server that rotates refresh tokens would take the next attempt for theft.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hashbrown::HashMap;

use super::discovery::origin;
use super::events::{LoginEvent, LoginEvents};
use super::grant::{Grant, Tokens};
use super::network::Network;
use super::secret::Secret;
use super::settings::{LoginSettings, Of};
use super::store::{GrantKey, GrantLock, GrantStore};
use super::token::{self, TokenError};
use crate::clock;
use crate::lock::LockUnpoisoned;

/// How long a refresh waits for that of another process.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// The server cannot be used until a person logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeedsLogin {
    pub server: String,
    /// The agent whose login is missing, if agents have their own.
    pub owner: Option<String>,
    pub why: String,
}

impl NeedsLogin {
    /// The command that logs in.
    pub fn command(&self) -> String {
        match &self.owner {
            None => format!("toolward login {}", self.server),
            Some(agent) => format!("toolward login {} --as {agent}", self.server),
        }
    }
}

impl std::fmt::Display for NeedsLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it needs a login: {}. Run `{}`", self.why, self.command())
    }
}

impl std::error::Error for NeedsLogin {}

/// Why there is no token.
#[derive(Debug, Clone)]
pub(crate) enum SourceError {
    /// `true`: the authorization server said so, so that it should not be asked again at once.
    NeedsLogin(NeedsLogin, bool),
    Failed(String),
}

/// The tokens of one login.
pub(crate) struct GrantSource {
    settings: Arc<LoginSettings>,
    store: GrantStore,
    key: GrantKey,
    /// A refreshed grant that could not be stored yet.
    unsaved: Mutex<Option<Grant>>,
    /// Held by the thread that refreshes.
    refreshing: Arc<tokio::sync::Mutex<()>>,
    pub(crate) events: LoginEvents,
}

impl GrantSource {
    pub(crate) fn new(settings: Arc<LoginSettings>, owner: Option<String>) -> Arc<GrantSource> {
        let store = GrantStore::in_state(&settings.state);
        let key = GrantKey { server: settings.server.clone(), owner };
        let (unsaved, refreshing, events) = Default::default();
        Arc::new(GrantSource { settings, store, key, unsaved, refreshing, events })
    }

    pub(crate) fn settings(&self) -> &Arc<LoginSettings> {
        &self.settings
    }

    pub(crate) fn owner(&self) -> Option<&str> {
        self.key.owner.as_deref()
    }

    /// The stored grant, if it is for this server.
    fn load(&self) -> Result<Option<Grant>, String> {
        if let Some(unsaved) = &*self.unsaved.locked() {
            return Ok(Some(unsaved.clone()));
        }
        let grant = self.store.load(&self.key).map_err(|error| error.to_string())?;
        // A token goes to the origin that it was issued for, even if the URL of the server was changed.
        let own = origin(&self.settings.address);
        Ok(grant.filter(|grant| grant.origin == own))
    }

    /// The grant, without a refresh. For reports.
    pub(crate) fn grant(&self) -> Result<Option<Grant>, String> {
        self.load()
    }

    /// Why a login is needed, if it is, as far as that is known without a request.
    pub(crate) fn needs_login(&self) -> Option<NeedsLogin> {
        match self.load() {
            Err(_) => Some(self.needs("the stored login cannot be read")),
            Ok(grant) => self.usable(grant.as_ref(), None).err(),
        }
    }

    /// Whether no one has logged in. A login that is lost, or cannot be read, is not missing.
    pub(crate) fn has_no_grant(&self) -> bool {
        matches!(self.load(), Ok(None))
    }

    fn needs(&self, why: impl Into<String>) -> NeedsLogin {
        let GrantKey { server, owner } = self.key.clone();
        NeedsLogin { server, owner, why: why.into() }
    }

    /// The tokens of a grant, if they can be used without a refresh, or if a refresh is possible.
    fn usable(
        &self,
        grant: Option<&Grant>,
        rejected: Option<&Secret>,
    ) -> Result<(Tokens, bool), NeedsLogin> {
        let grant = grant.ok_or_else(|| self.needs("no one has logged in yet"))?;
        if let Some(why) = grant.lost() {
            return Err(self.needs(why));
        }
        let tokens = grant.tokens.clone().ok_or_else(|| self.needs("the login is lost"))?;
        let is_rejected = rejected.is_some_and(|rejected| *rejected == tokens.access);
        let (refresh_in, expires_in) = tokens.remaining(clock::seconds());
        let is_fresh = refresh_in > 0 && !is_rejected;
        if tokens.refresh.is_none() {
            let why = match (is_rejected, expires_in) {
                (true, _) => "the server rejects the token, which cannot be refreshed",
                (false, 0) => "the token has expired, and cannot be refreshed",
                (false, _) => return Ok((tokens, true)),
            };
            return Err(self.needs(why));
        }
        Ok((tokens, is_fresh))
    }

    /// The current tokens and the id of the grant. `rejected` is an access token that the server does not accept.
    pub(crate) async fn tokens(
        self: &Arc<Self>,
        rejected: Option<Secret>,
    ) -> Result<(Tokens, String), SourceError> {
        let grant = self.load().map_err(SourceError::Failed)?;
        let usable = self.usable(grant.as_ref(), rejected.as_ref());
        let (tokens, is_fresh) = usable.map_err(|needs| SourceError::NeedsLogin(needs, false))?;
        if is_fresh && self.unsaved.locked().is_none() {
            let id = grant.map(|grant| grant.id).unwrap_or_default();
            return Ok((tokens, id));
        }
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let source = self.clone();
        let refresh = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let refreshed = match runtime {
                Ok(runtime) => runtime.block_on(source.refreshed(rejected)),
                Err(error) => Err(SourceError::Failed(error.to_string())),
            };
            let _ = sender.send(refreshed);
        };
        let failed = |why: String| SourceError::Failed(format!("the refresh did not start: {why}"));
        let thread = std::thread::Builder::new().name("refresh".into()).spawn(refresh);
        thread.map_err(|error| failed(error.to_string()))?;
        receiver.await.map_err(|error| failed(error.to_string()))?
    }

    /// Waits until no refresh is in flight.
    pub(crate) async fn settled(&self) {
        drop(self.refreshing.lock().await);
    }

    /// Refreshes the grant, unless another process has done so.
    async fn refreshed(&self, rejected: Option<Secret>) -> Result<(Tokens, String), SourceError> {
        let _own = self.refreshing.lock().await;
        let failed = |error: std::io::Error| SourceError::Failed(error.to_string());
        let lock = match tokio::time::timeout(LOCK_TIMEOUT, self.store.lock(&self.key)).await {
            Ok(lock) => lock.map_err(failed)?,
            Err(_) => {
                let why = "another process did not finish its refresh in time";
                return Err(SourceError::Failed(why.into()));
            }
        };
        self.save_unsaved(&lock)?;
        let mut sent: Option<Secret> = None;
        // A second round only if the grant changed while the first one was rejected.
        loop {
            let grant = self.load().map_err(SourceError::Failed)?;
            let usable = self.usable(grant.as_ref(), rejected.as_ref());
            let usable = usable.map_err(|needs| SourceError::NeedsLogin(needs, false))?;
            let (Some(grant), (tokens, is_fresh)) = (grant, usable) else {
                return Err(SourceError::NeedsLogin(self.needs("no one has logged in yet"), false));
            };
            let Some(refresh) = tokens.refresh.clone().filter(|_| !is_fresh) else {
                return Ok((tokens, grant.id));
            };
            if sent.as_ref() == Some(&refresh) {
                return Err(self.lose(&lock, &grant));
            }
            match self.request(&grant, &refresh).await {
                Ok(next) => return self.store_next(&lock, next),
                Err(TokenError::Rejected("invalid_grant")) => sent = Some(refresh),
                Err(error) => return Err(self.failed(&lock, &grant, error)),
            }
        }
    }

    /// Requests new tokens, with exactly what the login was made with.
    async fn request(&self, grant: &Grant, refresh: &Secret) -> Result<Grant, TokenError> {
        let tls = self.settings.tls.as_ref();
        let network = Network::new(grant.zone, &self.settings.address, tls);
        let mut all = vec![("grant_type", "refresh_token"), ("refresh_token", refresh.expose())];
        all.extend(grant.resource.as_deref().map(|resource| ("resource", resource)));
        let issued = token::request(&network, &grant.token_endpoint, &grant.client, &all).await?;
        let mut tokens = issued.tokens;
        tokens.refresh = tokens.refresh.or_else(|| Some(refresh.clone()));
        let scope = issued.scope.or_else(|| grant.scope.clone());
        let refreshes = grant.refreshes + 1;
        Ok(Grant { tokens: Some(tokens), scope, refreshes, ..grant.clone() })
    }

    /// Stores the new tokens. Until that succeeds they are not used, and kept in memory.
    fn store_next(&self, lock: &GrantLock, next: Grant) -> Result<(Tokens, String), SourceError> {
        *self.unsaved.locked() = Some(next.clone());
        self.save_unsaved(lock)?;
        self.events.add(LoginEvent::refreshed(&next));
        let tokens = next.tokens.ok_or_else(|| SourceError::Failed("there is no token".into()))?;
        Ok((tokens, next.id))
    }

    fn save_unsaved(&self, lock: &GrantLock) -> Result<(), SourceError> {
        let Some(unsaved) = self.unsaved.locked().clone() else { return Ok(()) };
        match self.store.save(lock, &self.key, &unsaved) {
            Ok(()) => {
                *self.unsaved.locked() = None;
                Ok(())
            }
            Err(error) => {
                let why = format!("the refreshed login cannot be stored: {error}");
                tracing::error!(target: "login", server = self.key.server, "{why}");
                Err(SourceError::Failed(why))
            }
        }
    }

    /// The newest refresh token is not valid any longer.
    fn lose(&self, lock: &GrantLock, grant: &Grant) -> SourceError {
        let why = "the authorization server ended the login (`invalid_grant`)";
        let saved = self.store.save(lock, &self.key, &grant.without_tokens(why));
        if let Err(error) = saved {
            tracing::error!(target: "login", server = self.key.server, "{error}");
        }
        let needs = self.needs(why);
        tracing::warn!(target: "login", server = self.key.server, "{needs}");
        self.events.add(LoginEvent::lost(grant, "invalid_grant"));
        SourceError::NeedsLogin(needs, true)
    }

    /// An error that does not end the login.
    fn failed(&self, lock: &GrantLock, grant: &Grant, error: TokenError) -> SourceError {
        let why = error.to_string();
        tracing::warn!(target: "login", server = self.key.server, "the refresh failed: {why}");
        match error {
            TokenError::Partial(refresh, _) => {
                // The old refresh token may be invalid now.
                let mut next = grant.clone();
                if let Some(tokens) = &mut next.tokens {
                    tokens.refresh = Some(refresh);
                }
                *self.unsaved.locked() = Some(next);
                let _ = self.save_unsaved(lock);
                SourceError::Failed(why)
            }
            TokenError::Rejected(code @ ("invalid_client" | "unauthorized_client")) => {
                let why = format!("the authorization server does not accept the client (`{code}`)");
                SourceError::NeedsLogin(self.needs(why), true)
            }
            TokenError::Rejected(_) | TokenError::Failed(_) => SourceError::Failed(why),
        }
    }
}

/// The sources of a server: one, or one for each agent.
pub(crate) struct GrantSources {
    settings: Arc<LoginSettings>,
    by_owner: Mutex<HashMap<Option<String>, Arc<GrantSource>>>,
}

impl GrantSources {
    pub(crate) fn new(settings: LoginSettings) -> GrantSources {
        GrantSources { settings: Arc::new(settings), by_owner: Mutex::default() }
    }

    pub(crate) fn settings(&self) -> &LoginSettings {
        &self.settings
    }

    /// The source for an agent. Agents are those of the configuration, so that there are not many.
    pub(crate) fn of(&self, agent: Option<&str>) -> Arc<GrantSource> {
        let owner = match self.settings.of {
            Of::Gateway => None,
            Of::Agent => Some(agent.unwrap_or_default().to_owned()),
        };
        let mut all = self.by_owner.locked();
        let source = all.entry(owner.clone());
        source.or_insert_with(|| GrantSource::new(self.settings.clone(), owner)).clone()
    }

    pub(crate) fn all(&self) -> Vec<Arc<GrantSource>> {
        self.by_owner.locked().values().cloned().collect()
    }
}

#[cfg(test)]
mod model;
