//! Any policy, any tools, any call: the compiled path says what the plain one and the naive model
//! say, denies win, layers only narrow, and what is hidden cannot be called.
#![no_main]

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use toolward_fuzz::arbitrary::{Scene, scene, tools};
use toolward_fuzz::model;
use toolward_policy::explain::Query;
use toolward_policy::source::{Entry, KeyedList, RulesSource, Source};
use toolward_policy::{Call, Caller, Decision, Policy, Row, Subject, Tool, ToolSet, Verdict};

fuzz_target!(|data: &[u8]| {
    let Ok(scene) = scene(&mut Unstructured::new(data)) else { return };
    let Ok(policy) = Policy::compile(scene.source.clone()) else { return };
    let view = View::new(&scene, policy);
    for (at, tool) in view.tools.iter().enumerate() {
        view.fast_is_plain(tool);
        view.fast_is_the_model(tool, at);
        view.listing_means_callable(tool);
    }
    view.other_subjects();
    view.a_further_layer_narrows();
    view.a_further_deny_narrows();
});

/// One policy, and how the scene's caller sees it.
struct View<'a> {
    scene: &'a Scene,
    policy: Policy,
    tools: Vec<Tool>,
    row: Row,
}

impl<'a> View<'a> {
    fn new(scene: &'a Scene, policy: Policy) -> View<'a> {
        let tools = tools(scene);
        let row = policy.row(scene.agent.as_deref(), &scene.server, &ToolSet::new(tools.clone()));
        View { scene, policy, tools, row }
    }

    fn caller(&self) -> Caller<'_> {
        Caller { agent: self.scene.agent.as_deref(), claims: Some(&self.scene.claims) }
    }

    fn call(&self) -> Call<'_> {
        Call {
            action: self.scene.action.as_deref(),
            arguments: self.scene.arguments.as_ref().map(|arguments| arguments as _),
        }
    }

    fn decide(&self, tool: &Tool, call: &Call<'_>) -> Decision {
        self.policy.decide(self.caller(), &self.scene.server, tool, call)
    }

    fn explain(&self, subject: Subject<'_>, query: Query<'_>) -> Decision {
        self.policy.explain(self.caller(), &self.scene.server, subject, query).decision
    }

    fn fast_is_plain(&self, tool: &Tool) {
        let hints = self.policy.hints(&self.scene.server, tool);
        let subject = Subject::Tool(tool, &hints);
        let plain = self.explain(subject, Query::Call(self.call()));
        assert_eq!(self.decide(tool, &self.call()), plain, "call of {:?}", tool.name());
        let listed = self.policy.list(self.caller(), &self.scene.server, tool).decision;
        assert_eq!(listed, self.explain(subject, Query::List), "listing of {:?}", tool.name());

        let server = self.policy.decide_server(self.scene.agent.as_deref(), &self.scene.server);
        assert!(server.verdict != Verdict::Deny || plain.verdict == Verdict::Deny);
    }

    fn fast_is_the_model(&self, tool: &Tool, at: usize) {
        let scene = self.scene;
        if model::has_conditions(&scene.source.layers) {
            return;
        }
        let exposed = |e: &toolward_policy::exposure::Exposure| e.show(tool.name()).is_some();
        let wanted = if self.policy.exposure(&scene.server).is_none_or(exposed) {
            let asked = model::Asked {
                agent: scene.agent.as_deref(),
                server: &scene.server,
                tool: tool.name(),
                definition: &scene.tools[at].1,
                hints: &self.policy.hints(&scene.server, tool),
                action_keys: self.policy.action_keys(&scene.server, tool.name()),
                action: scene.action.as_deref(),
                arguments: scene.arguments.as_ref(),
            };
            model::verdict(&scene.source.layers, &asked)
        } else {
            Verdict::Deny
        };
        let got = self.decide(tool, &self.call());
        assert_eq!(got.verdict, wanted, "{got:?} for {:?}", tool.name());
    }

    fn listing_means_callable(&self, tool: &Tool) {
        let Some(cell) = self.row.cell(tool.name()) else { panic!("a row has all its tools") };
        let listing = cell.list(self.caller());
        let called = self.row.decide(self.caller(), tool.name(), &self.call());
        if listing.decision.verdict == Verdict::Deny {
            assert_eq!(called.verdict, Verdict::Deny, "{:?} is hidden", tool.name());
            return;
        }
        assert_ne!(called.verdict, Verdict::Depends, "a call is decided");
        // The first tool of a name is the one in the row; others of that name are not shown.
        let first = self.tools.iter().find(|own| own.name() == tool.name());
        if !first.is_some_and(|own| std::ptr::eq(own, tool)) {
            return;
        }
        let definition: serde_json::Value =
            serde_json::from_str(tool.definition()).unwrap_or_default();
        let Some(kept) = listing.actions else { return };
        let keys = self.policy.action_keys(&self.scene.server, tool.name());
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
        let agent = self.scene.agent.as_deref();
        for (name, _) in &self.scene.tools {
            let subjects = [
                Subject::Prompt(name),
                Subject::Resource(name),
                Subject::Template(name),
                Subject::ClientRequest(name),
                Subject::ClientRequest("elicitation"),
            ];
            for subject in subjects {
                let cell = self.policy.cell(agent, &self.scene.server, subject);
                let plain = self.explain(subject, Query::Call(self.call()));
                assert_eq!(cell.decide(self.caller(), &self.call()), plain, "{subject:?}");
                let plain = self.explain(subject, Query::List);
                assert_eq!(cell.list(self.caller()).decision, plain, "{subject:?}");
            }
        }
    }

    fn a_further_layer_narrows(&self) {
        let mut source = self.scene.source.clone();
        source.layers.push(self.scene.further.clone());
        self.narrows(source);
    }

    fn a_further_deny_narrows(&self) {
        let mut source = self.scene.source.clone();
        let (key, entry) = &self.scene.further_deny;
        let agents = source.layers.iter_mut().find_map(|layer| match &mut layer.rules {
            RulesSource::Agents(agents) => Some(&mut agents.agents),
            _ => None,
        });
        for (_, agent) in agents.into_iter().flatten() {
            let entries = vec![entry.clone()];
            let list = KeyedList { key: key.clone(), entries, ..KeyedList::default() };
            agent.deny.tools.push(list);
        }
        self.narrows(source);

        // A deny for everything leaves nothing, whatever allows it.
        let mut source = self.scene.source.clone();
        let mut agents_layers = 0;
        for layer in &mut source.layers {
            if let RulesSource::Agents(agents) = &mut layer.rules {
                agents_layers += 1;
                for (_, agent) in &mut agents.agents {
                    let entries = vec![Entry::new("*")];
                    let list = KeyedList { key: "*".into(), entries, ..KeyedList::default() };
                    agent.deny.tools.push(list);
                }
            }
        }
        let Ok(policy) = Policy::compile(source) else { return };
        if agents_layers > 0 {
            for tool in &self.tools {
                let denied = policy.decide(self.caller(), &self.scene.server, tool, &self.call());
                assert_eq!(denied.verdict, Verdict::Deny, "denied: {:?}", tool.name());
            }
        }
    }

    /// Nothing that is denied here may be allowed by `source`.
    fn narrows(&self, source: Source) {
        let Ok(policy) = Policy::compile(source) else { return };
        let other = View::new(self.scene, policy);
        for tool in &self.tools {
            let (held, next) = (self.decide(tool, &self.call()), other.decide(tool, &other.call()));
            assert!(next.verdict >= held.verdict, "{held:?} became {next:?}");
            let list = |view: &View<'_>| {
                view.policy.list(view.caller(), &view.scene.server, tool).decision.verdict
            };
            let (held, next) = (list(self), list(&other));
            assert!(next == Verdict::Deny || held != Verdict::Deny, "{held:?} became {next:?}");
        }
    }
}
