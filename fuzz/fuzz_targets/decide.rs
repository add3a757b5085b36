//! Fuzzes decisions with any policy, tools and calls.
//!
//! The compiled path agrees with `explain` and with the naive model, deny wins, layers only narrow,
//! and unlisted tools cannot be called.
#![no_main]

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use toolward_fuzz::arbitrary::{Request, Scene, scene, tools};
use toolward_fuzz::model;
use toolward_policy::explain::Query;
use toolward_policy::source::{AgentsSource, Entry, KeyedList, LayerSource, RulesSource, Source};
use toolward_policy::{Call, Caller, Decision, Policy, Row, Subject, Tool, ToolSet, Verdict};

fuzz_target!(|data: &[u8]| {
    let Ok(scene) = scene(&mut Unstructured::new(data)) else { return };
    let Ok(policy) = Policy::compile(scene.source.clone()) else { return };
    let narrower: Vec<Policy> = [with_further_layer(&scene), with_further_deny(&scene)]
        .into_iter()
        .filter_map(|source| Policy::compile(source).ok())
        .collect();
    let closed = with_everything_denied(&scene).and_then(|source| Policy::compile(source).ok());
    let tools = tools(&scene);
    for request in &scene.requests {
        let view = View::new(&scene, request, &policy, &tools);
        for (at, tool) in tools.iter().enumerate() {
            view.fast_is_plain(tool);
            view.fast_is_the_model(tool, at);
            view.listing_means_callable(tool);
            for narrower in &narrower {
                view.is_narrowed_by(narrower, tool);
            }
            if let Some(closed) = &closed {
                let denied = closed.decide(view.caller(), &request.server, tool, &view.call());
                assert_eq!(denied.verdict, Verdict::Deny, "denied: {:?}", tool.name());
            }
        }
        view.other_subjects();
    }
});

fn with_further_layer(scene: &Scene) -> Source {
    let mut source = scene.source.clone();
    source.layers.push(scene.further.clone());
    source
}

/// Adds the deny entry to all agents of the first layer that has agents.
fn with_further_deny(scene: &Scene) -> Source {
    let mut source = scene.source.clone();
    let (key, entry) = &scene.further_deny;
    if let Some(agents) = source.layers.iter_mut().find_map(agents) {
        deny(agents, key, entry);
    }
    source
}

fn with_everything_denied(scene: &Scene) -> Option<Source> {
    let mut source = scene.source.clone();
    let agents = source.layers.iter_mut().find_map(agents)?;
    deny(agents, "*", &Entry::new("*"));
    Some(source)
}

fn agents(layer: &mut LayerSource) -> Option<&mut AgentsSource> {
    match &mut layer.rules {
        RulesSource::Agents(agents) => Some(agents),
        _ => None,
    }
}

fn deny(agents: &mut AgentsSource, key: &str, entry: &Entry) {
    for (_, agent) in &mut agents.agents {
        let (key, entries) = (key.into(), vec![entry.clone()]);
        agent.deny.tools.push(KeyedList { key, entries, ..KeyedList::default() });
    }
}

/// A policy as seen by one caller.
struct View<'a> {
    scene: &'a Scene,
    request: &'a Request,
    policy: &'a Policy,
    tools: &'a [Tool],
    row: Row,
}

impl<'a> View<'a> {
    fn new(
        scene: &'a Scene,
        request: &'a Request,
        policy: &'a Policy,
        tools: &'a [Tool],
    ) -> View<'a> {
        let set = ToolSet::new(tools.to_vec());
        let row = policy.row(request.agent.as_deref(), &request.server, &set);
        View { scene, request, policy, tools, row }
    }

    fn caller(&self) -> Caller<'_> {
        Caller { agent: self.request.agent.as_deref(), claims: Some(&self.request.claims) }
    }

    fn call(&self) -> Call<'_> {
        Call {
            action: self.request.action.as_deref(),
            arguments: self.request.arguments.as_ref().map(|arguments| arguments as _),
        }
    }

    fn decide(&self, tool: &Tool, call: &Call<'_>) -> Decision {
        self.policy.decide(self.caller(), &self.request.server, tool, call)
    }

    fn explain(&self, subject: Subject<'_>, query: Query<'_>) -> Decision {
        self.policy.explain(self.caller(), &self.request.server, subject, query).decision
    }

    fn fast_is_plain(&self, tool: &Tool) {
        let hints = self.policy.hints(&self.request.server, tool);
        let subject = Subject::Tool(tool, &hints);
        let plain = self.explain(subject, Query::Call(self.call()));
        assert_eq!(self.decide(tool, &self.call()), plain, "call of {:?}", tool.name());
        let listed = self.policy.list(self.caller(), &self.request.server, tool).decision;
        assert_eq!(listed, self.explain(subject, Query::List), "listing of {:?}", tool.name());

        let server = self.policy.decide_server(self.request.agent.as_deref(), &self.request.server);
        assert!(server.verdict != Verdict::Deny || plain.verdict == Verdict::Deny);
    }

    fn fast_is_the_model(&self, tool: &Tool, at: usize) {
        let (layers, request) = (&self.scene.source.layers, self.request);
        if model::has_conditions(layers) {
            return;
        }
        let exposed = |e: &toolward_policy::exposure::Exposure| e.show(tool.name()).is_some();
        let wanted = if self.policy.exposure(&request.server).is_none_or(exposed) {
            let call = model::ModelCall {
                agent: request.agent.as_deref(),
                server: &request.server,
                tool: tool.name(),
                definition: &self.scene.tools[at].1,
                hints: &self.policy.hints(&request.server, tool),
                action_keys: self.policy.action_keys(&request.server, tool.name()),
                action: request.action.as_deref(),
                arguments: request.arguments.as_ref(),
            };
            model::verdict(layers, &call)
        } else {
            Verdict::Deny
        };
        let got = self.decide(tool, &self.call());
        assert_eq!(got.verdict, wanted, "{got:?} for {:?}", tool.name());
    }

    fn listing_means_callable(&self, tool: &Tool) {
        let Some(cell) = self.row.cell(tool.name()) else { panic!("a row has all tools") };
        let listing = cell.list(self.caller());
        let called = self.row.decide(self.caller(), tool.name(), &self.call());
        if listing.decision.verdict == Verdict::Deny {
            assert_eq!(called.verdict, Verdict::Deny, "{:?} is hidden", tool.name());
            return;
        }
        assert_ne!(called.verdict, Verdict::Depends, "a call is decided");
        // A row has the first tool with a name. Others with the same name are not listed.
        let first = self.tools.iter().find(|own| own.name() == tool.name());
        if !first.is_some_and(|own| std::ptr::eq(own, tool)) {
            return;
        }
        let definition: serde_json::Value =
            serde_json::from_str(tool.definition()).unwrap_or_default();
        let Some(kept) = listing.actions else { return };
        let keys = self.policy.action_keys(&self.request.server, tool.name());
        let values = keys.iter().flat_map(|key| {
            let values = definition["inputSchema"]["properties"][&**key]["enum"].as_array();
            values.into_iter().flatten().filter_map(|value| value.as_str())
        });
        for value in values {
            let call = Call { action: Some(value), ..self.call() };
            let verdict = self.row.decide(self.caller(), tool.name(), &call).verdict;
            let shown = kept.iter().any(|kept| kept == value);
            assert!(shown || verdict == Verdict::Deny, "{value:?} is not in the listed enum");
            if shown && !model::has_conditions(&self.scene.source.layers) {
                assert_ne!(verdict, Verdict::Deny, "{value:?} is in the listed enum");
            }
        }
    }

    fn other_subjects(&self) {
        let agent = self.request.agent.as_deref();
        for (name, _) in &self.scene.tools {
            let subjects = [
                Subject::Prompt(name),
                Subject::Resource(name),
                Subject::Template(name),
                Subject::ClientRequest(name),
                Subject::ClientRequest("elicitation"),
            ];
            for subject in subjects {
                let cell = self.policy.cell(agent, &self.request.server, subject);
                let plain = self.explain(subject, Query::Call(self.call()));
                assert_eq!(cell.decide(self.caller(), &self.call()), plain, "{subject:?}");
                let plain = self.explain(subject, Query::List);
                assert_eq!(cell.list(self.caller()).decision, plain, "{subject:?}");
            }
        }
    }

    /// Checks that the narrower policy allows nothing that this one denies.
    fn is_narrowed_by(&self, narrower: &Policy, tool: &Tool) {
        let server = &self.request.server;
        let held = self.decide(tool, &self.call());
        let next = narrower.decide(self.caller(), server, tool, &self.call());
        assert!(next.verdict >= held.verdict, "{held:?} became {next:?}");
        let list = |policy: &Policy| policy.list(self.caller(), server, tool).decision.verdict;
        let (held, next) = (list(self.policy), list(narrower));
        assert!(next == Verdict::Deny || held != Verdict::Deny, "{held:?} became {next:?}");
    }
}
