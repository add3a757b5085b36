//! Random sequences of refreshes, restarts, logins, logouts, revocations and faults, by several processes that share one
//! grant, compared with a plain model: a live login is never lost, and no refresh overlaps another one.

use std::sync::Arc;

use proptest::prelude::*;
use toolward_testkit::authorization_server::{
    AuthorizationServer, ProtectedServer, ProtectedSwitches, Refresh, Switches, TokenFault, follow,
};

use super::*;
use crate::http_client::Address;
use crate::login::settings::{Flow, Resource};
use crate::login::{Login, logout};

const PROCESSES: usize = 3;

#[derive(Debug, Clone)]
enum Op {
    /// A process needs a token.
    Use(usize),
    /// All processes need another token at once, because the server rejects the current one.
    UseAfterRejection,
    /// The next token request fails, in one of several ways.
    Fault(u8),
    Restart(usize),
    Login,
    Logout,
    /// The provider ends the login.
    Revoke,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..PROCESSES).prop_map(Op::Use),
        6 => Just(Op::UseAfterRejection),
        3 => (0..6_u8).prop_map(Op::Fault),
        2 => (0..PROCESSES).prop_map(Op::Restart),
        1 => Just(Op::Login),
        1 => Just(Op::Logout),
        1 => Just(Op::Revoke),
    ]
}

/// The true state, independent of the implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Model {
    LoggedOut,
    Live,
    /// The provider ended it. The access token may still be accepted, but cannot be refreshed.
    Revoked,
}

struct World {
    tokens: AuthorizationServer,
    _protected: ProtectedServer,
    settings: Arc<LoginSettings>,
    processes: Vec<Arc<GrantSource>>,
    model: Model,
    faults: usize,
}

impl World {
    fn new(state: &std::path::Path, refresh: Refresh) -> World {
        let tokens =
            AuthorizationServer::start(Switches { refresh, ..Switches::default() }).unwrap();
        let protected = ProtectedServer::start(&tokens, ProtectedSwitches::default()).unwrap();
        let [_, _, a, b] = std::process::id().to_be_bytes();
        let settings = Arc::new(LoginSettings {
            server: "s".into(),
            url: protected.url(),
            address: Address::parse(&protected.url()).unwrap(),
            tls: None,
            client: None,
            scope: None,
            flow: Flow::Browser,
            of: Of::Gateway,
            resource: Resource::Discovered,
            redirect: format!("http://127.90.{a}.{b}:7411/oauth/callback"),
            client_metadata_url: None,
            issuer: None,
            state: state.to_owned(),
        });
        let process = |_| GrantSource::new(settings.clone(), None);
        let processes = (0..PROCESSES).map(process).collect();
        World {
            tokens,
            _protected: protected,
            settings,
            processes,
            model: Model::LoggedOut,
            faults: 0,
        }
    }

    async fn login(&mut self) {
        self.tokens.switch(|switches| switches.token_faults.clear());
        self.faults = 0;
        let login = Login::begin((*self.settings).clone(), None).await.unwrap();
        let crate::login::Task::Open { url, .. } = login.task() else { panic!() };
        let person = std::thread::spawn(move || follow(&url).unwrap());
        login.wait().await.unwrap();
        assert_eq!(person.join().unwrap().status, 200);
        self.model = Model::Live;
    }

    /// A process asks for a token; the result must fit the model.
    fn check(&self, got: &Result<(Tokens, String), SourceError>, had_faults: bool) {
        match (self.model, got) {
            (Model::LoggedOut, Err(SourceError::NeedsLogin(..))) => {}
            (Model::Live, Ok((tokens, _))) => {
                let header = format!("Bearer {}", tokens.access.expose());
                assert!(had_faults || self.tokens.valid(&header).is_some(), "an old token");
            }
            (Model::Live, Err(SourceError::Failed(_))) => assert!(had_faults, "{got:?}"),
            (Model::Revoked, Err(SourceError::NeedsLogin(..)) | Ok(_)) => {}
            (Model::Revoked, Err(SourceError::Failed(_))) => assert!(had_faults, "{got:?}"),
            _ => panic!("{:?}: {got:?}", self.model),
        }
    }

    fn current(&self) -> Option<Secret> {
        let grant = self.processes[0].store.load(&self.processes[0].key).unwrap()?;
        grant.tokens.map(|tokens| tokens.access)
    }

    async fn apply(&mut self, op: &Op) {
        match op {
            Op::Use(at) => {
                let had_faults = self.faults > 0 || self.model == Model::Live;
                let got = self.processes[*at].tokens(None).await;
                self.check(&got, had_faults);
            }
            Op::UseAfterRejection => {
                self.tokens.expire_access_tokens();
                let rejected = self.current();
                let had_faults = self.faults > 0;
                let mut tasks = tokio::task::JoinSet::new();
                for process in self.processes.clone() {
                    let rejected = rejected.clone();
                    tasks.spawn(async move { process.tokens(rejected).await });
                }
                while let Some(got) = tasks.join_next().await {
                    self.check(&got.unwrap(), had_faults);
                }
                self.faults = 0;
                self.tokens.switch(|switches| switches.token_faults.clear());
                if self.model == Model::Revoked && self.current().is_none() {
                    self.model = Model::LoggedOut;
                }
            }
            Op::Fault(kind) => {
                let error = |code: &str| format!("{{\"error\":\"{code}\"}}");
                let is_fixed = self.tokens_are_fixed();
                let fault = match kind {
                    0 => TokenFault::Status(500, "oops".into()),
                    1 => TokenFault::Status(429, error("slow_down")),
                    2 => TokenFault::Status(400, error("invalid_scope")),
                    3 => TokenFault::Status(503, error("temporarily_unavailable")),
                    // Without rotation, a lost response costs nothing.
                    4 if is_fixed => TokenFault::CloseAfter,
                    _ => TokenFault::CloseBefore,
                };
                self.tokens.switch(|switches| switches.token_faults.push(fault));
                self.faults += 1;
            }
            Op::Restart(at) => {
                self.processes[*at] = GrantSource::new(self.settings.clone(), None);
            }
            Op::Login => self.login().await,
            Op::Logout => {
                logout(&self.processes[0].store, &self.processes[0].key, None).await.unwrap();
                self.model = Model::LoggedOut;
            }
            Op::Revoke => {
                self.tokens.revoke_grants();
                if self.model == Model::Live {
                    self.model = Model::Revoked;
                }
            }
        }
        let counts = self.tokens.counts();
        assert_eq!((counts.overlapping, counts.reused), (0, 0), "{counts:?}");
        let stored = self.processes[0].store.load(&self.processes[0].key).unwrap();
        match self.model {
            Model::Live => assert!(stored.is_some_and(|grant| grant.can_refresh()), "it is lost"),
            Model::LoggedOut => assert!(stored.is_none_or(|grant| grant.tokens.is_none())),
            Model::Revoked => {}
        }
    }

    fn tokens_are_fixed(&self) -> bool {
        let mut is_fixed = false;
        self.tokens.switch(|switches| is_fixed = switches.refresh == Refresh::Fixed);
        is_fixed
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_live_login_is_never_lost(rotates in any::<bool>(), ops in prop::collection::vec(op(), 1..30)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let state = tempfile::tempdir().unwrap();
        let refresh = if rotates { Refresh::Rotating } else { Refresh::Fixed };
        runtime.block_on(async {
            let mut world = World::new(state.path(), refresh);
            world.login().await;
            for op in &ops {
                world.apply(op).await;
            }
            // In any case, a live login works once the faults are over.
            world.faults = 0;
            world.tokens.switch(|switches| switches.token_faults.clear());
            world.apply(&Op::UseAfterRejection).await;
        });
    }
}
