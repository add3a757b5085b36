//! Random sequences of calls, decisions, reloads and restarts, compared with a plain model: nothing is executed without
//! a grant that covers it, and nothing twice on a grant for one call.

use std::process::{Child, Command, Stdio};

use proptest::prelude::*;
use tempfile::TempDir;
use toolward_testkit::postgres::Postgres;
use toolward_testkit::wait::eventually;
use toolward_wire::{Message, Sender};

use super::tables::{CALL_GRANT, MAX_PENDING, SECOND};
use super::*;

/// A call: agent, tool and the value of one argument.
type ModelCall = (u8, u8, u8);

#[derive(Debug, Clone)]
enum Step {
    Call(ModelCall),
    Approve(u8, ModelScope),
    Deny(u8),
    Revoke(u8),
    /// Seconds.
    Wait(u16),
    /// Another rule asks about a tool.
    Reload(u8),
    /// A tool has another definition.
    Redefine(u8),
    /// An agent has no rules any more, and then has them again.
    RevokeAgent(u8),
    Restart,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ModelScope {
    Call,
    Argument,
    Tool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let call = || (0..2u8, 0..2u8, 0..3u8);
    let scope = prop_oneof![
        3 => Just(ModelScope::Call), 1 => Just(ModelScope::Argument), 1 => Just(ModelScope::Tool)
    ];
    let step = prop_oneof![
        12 => call().prop_map(Step::Call),
        5 => (any::<u8>(), scope).prop_map(|(at, scope)| Step::Approve(at, scope)),
        1 => any::<u8>().prop_map(Step::Deny),
        1 => any::<u8>().prop_map(Step::Revoke),
        2 => (1..1200u16).prop_map(Step::Wait),
        1 => (0..2u8).prop_map(Step::Reload),
        1 => (0..2u8).prop_map(Step::Redefine),
        1 => (0..2u8).prop_map(Step::RevokeAgent),
        2 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

/// The subject that an approval is bound to, besides the argument.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ModelSubject {
    agent: u8,
    tool: u8,
    definition: u32,
    rule: u32,
}

#[derive(Debug)]
struct ModelTicket {
    id: String,
    subject: ModelSubject,
    argument: u8,
    expires: u64,
}

#[derive(Debug)]
struct ModelGrant {
    id: String,
    subject: ModelSubject,
    argument: Option<u8>,
    once: bool,
    expires: u64,
}

const TTL: u64 = 600 * SECOND;
const LIFETIME: Duration = Duration::from_secs(1800);

#[derive(Default)]
struct Model {
    definitions: [u32; 2],
    rules: [u32; 2],
    tickets: Vec<ModelTicket>,
    grants: Vec<ModelGrant>,
    /// Agent, tool, time, and the gateway that noticed it: they do not share how people decided lately.
    denials: Vec<(u8, u8, u64, usize)>,
}

impl Model {
    fn subject(&self, agent: u8, tool: u8) -> ModelSubject {
        let at = usize::from(tool);
        ModelSubject { agent, tool, definition: self.definitions[at], rule: self.rules[at] }
    }

    fn expire(&mut self, now: u64) {
        self.tickets.retain(|ticket| now < ticket.expires);
        self.grants.retain(|grant| now < grant.expires);
    }

    /// A configuration is active that does not support some of them. In a shared store they stay.
    fn retain(&mut self, place: &Place, stays: impl Fn(&ModelSubject) -> bool) {
        if matches!(place, Place::Shared(_)) {
            return;
        }
        self.tickets.retain(|ticket| stays(&ticket.subject));
        self.grants.retain(|grant| stays(&grant.subject));
    }
}

/// The store under test.
enum Place {
    Directory(TempDir),
    Shared(String),
}

/// Gateways, which take steps in turn, and the model.
struct World<'p> {
    place: &'p Place,
    gateways: Vec<Approvals>,
    turn: usize,
    model: Model,
    executed: u32,
}

fn open(place: &Place, begun: (u64, Instant)) -> Vec<Approvals> {
    let opened = match place {
        Place::Directory(folder) => vec![Approvals::in_state(folder.path(), "test").unwrap()],
        Place::Shared(url) => {
            let sealer = || Arc::new(Sealer::shared(&["the secret of all gateways"]).unwrap());
            (0..2).map(|_| Approvals::shared(url, None, sealer()).unwrap()).collect()
        }
    };
    // Paused time does not advance the wall clock, so the clock continues across restarts.
    opened.into_iter().map(|approvals| Approvals { begun, ..approvals }).collect()
}

fn message(argument: u8) -> Message {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"x","arguments":{{"n":{argument}}}}}}}"#
    );
    Message::parse(body.into(), 1 << 10, Sender::Client).unwrap()
}

fn real(subject: ModelSubject) -> Subject {
    Subject {
        agent: Some(format!("agent-{}", subject.agent).into()),
        holder: None,
        server: "s".into(),
        method: "tools/call".into(),
        name: format!("tool-{}", subject.tool),
        definition: format!("definition-{}", subject.definition),
        entries: vec![entry(subject.tool, subject.rule)],
        origin: "o".into(),
    }
}

fn entry(tool: u8, rule: u32) -> String {
    format!("tool-{tool} rule-{rule}")
}

impl World<'_> {
    fn approvals(&self) -> &Approvals {
        &self.gateways[self.turn % self.gateways.len()]
    }

    async fn step(&mut self, step: &Step) {
        let now = self.approvals().now();
        self.model.expire(now);
        match step {
            Step::Call(call) => self.call(*call, now).await,
            Step::Approve(at, scope) => self.approve(*at, *scope, now).await,
            Step::Deny(at) => {
                let Some(at) = index(*at, self.model.tickets.len()) else { return };
                let ticket = self.model.tickets.remove(at);
                self.approvals().deny(&ticket.id, None).await.unwrap();
                let gateway = self.turn % self.gateways.len();
                let denial = (ticket.subject.agent, ticket.subject.tool, now, gateway);
                self.model.denials.push(denial);
            }
            Step::Revoke(at) => {
                let Some(at) = index(*at, self.model.grants.len()) else { return };
                let grant = self.model.grants.remove(at);
                assert!(self.approvals().revoke(&grant.id).await.unwrap().is_some());
            }
            Step::Wait(_) => {}
            Step::Reload(tool) => {
                self.model.rules[usize::from(*tool)] += 1;
                let rules = self.model.rules;
                let stays = [0, 1].map(|tool| entry(tool, rules[usize::from(tool)]));
                let stays = move |subject: &Subject| stays.contains(&subject.entries[0]);
                self.approvals().retain(stays, |removed| assert!(removed.is_ok()));
                self.model.retain(self.place, |one| one.rule == rules[usize::from(one.tool)]);
            }
            Step::Redefine(tool) => self.model.definitions[usize::from(*tool)] += 1,
            Step::RevokeAgent(agent) => {
                let name = format!("agent-{agent}");
                let stays = move |one: &Subject| one.agent.as_deref() != Some(&name);
                self.approvals().retain(stays, |removed| assert!(removed.is_ok()));
                self.model.retain(self.place, |one| one.agent != *agent);
            }
            Step::Restart => {
                let begun = self.approvals().begun;
                self.gateways.clear();
                self.gateways = open(self.place, begun);
                // How people decided lately is not stored.
                self.model.denials.clear();
            }
        }
    }

    async fn call(&mut self, (agent, tool, argument): ModelCall, now: u64) {
        let (subject, message) = (self.model.subject(agent, tool), message(argument));
        // Grants for other definitions of the tool are void from here on.
        self.model.grants.retain(|grant| {
            let one = grant.subject;
            (one.agent, one.tool) != (agent, tool) || one.definition == subject.definition
        });
        let covers = |grant: &ModelGrant| {
            grant.subject == subject && grant.argument.is_none_or(|own| own == argument)
        };
        let redeemed = self.approvals().redeem(real(subject), &message, None).await.unwrap();
        match redeemed {
            Ok(redeemed) => {
                self.executed += 1;
                let at = self.model.grants.iter().position(|grant| grant.id == redeemed.grant);
                let at =
                    at.unwrap_or_else(|| panic!("executed with an unknown grant: {redeemed:?}"));
                assert!(covers(&self.model.grants[at]), "executed with a grant for another call");
                if self.model.grants[at].once {
                    self.model.grants.remove(at);
                }
            }
            Err(binding) => {
                assert!(!self.model.grants.iter().any(covers), "a grant covers the call");
                self.ask(&binding, &message, (subject, argument), now).await;
            }
        }
    }

    async fn ask(
        &mut self,
        binding: &Binding,
        message: &Message,
        (subject, argument): (ModelSubject, u8),
        now: u64,
    ) {
        let question = Question {
            exposed: "x".into(),
            holder_name: None,
            rules: Vec::new(),
            ttl: Duration::from_micros(TTL),
        };
        let asked = self.approvals().ask(binding, message, question).await.unwrap();
        let same = |ticket: &&ModelTicket| (ticket.subject, ticket.argument) == (subject, argument);
        if let Some(known) = self.model.tickets.iter().find(same) {
            assert_eq!(asked.map(|asked| asked.ticket).ok().as_ref(), Some(&known.id));
            return;
        }
        let gateway = self.turn % self.gateways.len();
        let recent = |denial: &&(u8, u8, u64, usize)| {
            (denial.0, denial.1, denial.3) == (subject.agent, subject.tool, gateway)
                && denial.2 + 600 * SECOND > now
        };
        let of_agent = |ticket: &&ModelTicket| ticket.subject.agent == subject.agent;
        let expected = if self.model.denials.iter().filter(recent).count() >= 5 {
            Err(NotAsked::Fatigue)
        } else if self.model.tickets.iter().filter(of_agent).count() >= MAX_PENDING {
            Err(NotAsked::TooMany)
        } else {
            Ok(())
        };
        assert_eq!(asked.as_ref().map(|_| ()).map_err(|why| *why), expected);
        if let Ok(asked) = asked {
            let id = asked.ticket;
            self.model.tickets.push(ModelTicket { id, subject, argument, expires: now + TTL });
        }
    }

    async fn approve(&mut self, at: u8, scope: ModelScope, now: u64) {
        let Some(at) = index(at, self.model.tickets.len()) else { return };
        let ModelTicket { id, subject, argument, .. } = self.model.tickets.remove(at);
        let given = match scope {
            ModelScope::Call => Scope::Call,
            ModelScope::Argument => Scope::Arguments(vec!["n".into()], LIFETIME),
            ModelScope::Tool => Scope::Tool(LIFETIME),
        };
        let grant = self.approvals().approve(&id, &given, ("someone", "test")).await.unwrap();
        let once = scope == ModelScope::Call;
        let lifetime = if once { CALL_GRANT } else { LIFETIME.as_micros() as u64 };
        let argument = (scope != ModelScope::Tool).then_some(argument);
        let expires = now + lifetime;
        self.model.grants.push(ModelGrant { id: grant.id, subject, argument, once, expires });
        // A ticket is decided once.
        let again = self.approvals().approve(&id, &given, ("someone", "test")).await;
        assert!(again.is_err());
    }

    /// The store and the model contain the same.
    async fn compare(&mut self) {
        self.model.expire(self.approvals().now());
        let sorted = |mut ids: Vec<String>| {
            ids.sort();
            ids
        };
        let tickets = self.approvals().pending().await.unwrap().into_iter().map(|ticket| ticket.id);
        let expected = self.model.tickets.iter().map(|ticket| ticket.id.clone());
        assert_eq!(sorted(tickets.collect()), sorted(expected.collect()));
        let grants = self.approvals().grants().await.unwrap().into_iter().map(|grant| grant.id);
        let expected = self.model.grants.iter().map(|grant| grant.id.clone());
        assert_eq!(sorted(grants.collect()), sorted(expected.collect()));
    }
}

fn index(at: u8, length: usize) -> Option<usize> {
    (length > 0).then(|| usize::from(at) % length)
}

async fn run(place: &Place, steps: Vec<Step>) -> u32 {
    let gateways = open(place, (micros(), Instant::now()));
    // Each step takes longer than the real time that passes, so that both clocks agree.
    let mut world = World { place, gateways, turn: 0, model: Model::default(), executed: 0 };
    for step in &steps {
        let seconds = if let Step::Wait(seconds) = step { u64::from(*seconds) } else { 0 };
        tokio::time::advance(Duration::from_secs(seconds) + Duration::from_millis(1)).await;
        world.turn += 1;
        world.step(step).await;
        world.compare().await;
    }
    world.executed
}

/// Compares sequences with the model, each in a store of its own.
fn compare(cases: u32, place: impl Fn() -> Place) {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let counts = std::cell::Cell::new((0, 0));
    runner
        .run(&steps(), |steps| {
            let place = place();
            let done = runtime().block_on(run(&place, steps));
            let (executed, sequences) = counts.get();
            counts.set((executed + done, sequences + 1));
            Ok(())
        })
        .unwrap();
    let (executed, sequences) = counts.get();
    // The sequences reach what they are about.
    assert!(executed > sequences / 2, "{executed} calls in {sequences} sequences");
}

#[test]
fn nothing_is_executed_without_a_grant_or_twice_on_one() {
    compare(48, || Place::Directory(tempfile::tempdir().unwrap()));
}

#[test]
fn the_same_holds_for_two_gateways_with_postgresql() {
    let postgres = Postgres::start();
    let number = std::cell::Cell::new(0);
    compare(12, || {
        number.set(number.get() + 1);
        Place::Shared(postgres.create(&format!("case_{}", number.get())))
    });
}

#[test]
fn the_same_holds_for_two_gateways_with_redis() {
    let redis = RedisServer::start();
    compare(24, || {
        redis.command(&["FLUSHALL"]);
        Place::Shared(format!("redis://127.0.0.1:{}", redis.port))
    });
}

/// A server that ends with the test.
struct RedisServer {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl RedisServer {
    fn start() -> RedisServer {
        let folder = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"]);
        command.arg(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let server = RedisServer { child: command.spawn().unwrap(), port, _folder: folder };
        eventually("Redis responds", || server.command(&["PING"]));
        server
    }

    fn command(&self, words: &[&str]) -> bool {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &self.port.to_string()]).args(words);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
