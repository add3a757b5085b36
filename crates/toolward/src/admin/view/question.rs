//! A query about one call, prompt or resource, and the answer as the views show it. The facts are those of
//! `toolward explain`.

use std::sync::Arc;

use toolward_config::sanitize;
use toolward_config::suggest;
use toolward_gateway::active::Active;
use toolward_policy::reason::RuleText;
use toolward_policy::{Caller, Hints, Tool, ToolSet, Verdict};
use toolward_wire::list::{Entry, ListKind};

use crate::admin::AdminUi;
use crate::admin::lists::List;
use crate::admin::query::encoded;
use crate::admin::view::allow;
use crate::admin::view::prose::{Piece, pieces};
use crate::admin::view::words::{noun, subject};
use crate::arguments::ArgumentsText;
use crate::cli::Kind;
use crate::guards;
use crate::listing;
use crate::query::{Answer, PolicyQuery, Via, outcome, outcome_text, step_note};

/// A query on the active policy.
pub(super) struct ActiveQuestion {
    active: Arc<Active>,
    lists: Vec<List>,
    agent: Option<String>,
    kind: ListKind,
    server: String,
    name: String,
    /// `None`: the query is about the listing. An empty object is a call without arguments.
    arguments: Option<ArgumentsText>,
    tool: Option<Tool>,
    hints: Hints,
    unlisted: ToolSet,
}

/// An answer as it is displayed.
pub(crate) struct AnswerDetails {
    pub(crate) agent: Option<String>,
    /// The word for its subject.
    pub(crate) noun: &'static str,
    /// How the agent uses the subject, as a verb.
    pub(crate) verb: &'static str,
    pub(crate) server: String,
    pub(crate) tool: String,
    /// Whether it is about the listing.
    pub(crate) list: bool,
    /// The arguments as JSON, if it is about a call.
    pub(crate) arguments: Option<String>,
    pub(crate) verdict: &'static str,
    pub(crate) step: &'static str,
    pub(crate) rule: Option<Rule>,
    pub(crate) reason: Vec<Piece>,
    pub(crate) hints: Vec<String>,
    pub(crate) list_unknown: bool,
    /// The caller is unnamed, and unnamed callers are rejected.
    pub(crate) turned_away: bool,
    pub(crate) layers: Vec<LayerTraceRow>,
    pub(crate) sees: ListedTool,
    /// How the agent calls the tool, if not directly.
    pub(crate) note: Option<Vec<Piece>>,
    /// The URLs of this answer and of the form with this query.
    pub(crate) link: String,
    pub(crate) form: String,
    /// The URL of a proposal that permits it.
    pub(crate) allow: Option<String>,
}

/// The tool, prompt or resource as the agent sees it.
pub(crate) struct ListedTool {
    pub(crate) listed: bool,
    /// An earlier server that lists the same resource, to which it belongs.
    pub(crate) owner: Option<String>,
    /// The name by which clients call the tool.
    pub(crate) called: String,
    /// The actions in its narrowed schema.
    pub(crate) actions: Option<Vec<String>>,
    /// The request is refused.
    pub(crate) refused: bool,
    /// The text of the refusal of a direct call of a tool, line by line.
    pub(crate) refusal: Option<Vec<String>>,
    /// The same call through `execute_tool`, if the agent calls the tool that way.
    pub(crate) through: Option<Through>,
    /// Limits or hooks may still refuse.
    pub(crate) guarded: bool,
    /// The policy is only recorded.
    pub(crate) enforced: bool,
}

/// A call through `execute_tool`.
pub(crate) struct Through {
    /// Whether the agent finds the tool by searching.
    pub(crate) listed: bool,
    /// The text of the refusal, line by line.
    pub(crate) refusal: Option<Vec<String>>,
}

pub(crate) struct LayerTraceRow {
    pub(crate) number: u16,
    pub(crate) name: String,
    pub(crate) agent: Option<String>,
    pub(crate) verdict: &'static str,
    pub(crate) decided: bool,
    pub(crate) steps: Vec<Step>,
}

pub(crate) struct Step {
    pub(crate) step: &'static str,
    pub(crate) action: Option<String>,
    pub(crate) note: String,
    pub(crate) tried: Vec<TriedRule>,
    /// The step that decided the layer's verdict.
    pub(crate) decided: bool,
}

pub(crate) struct TriedRule {
    pub(crate) rule: Rule,
    /// One word, used as a CSS class.
    pub(crate) outcome: &'static str,
    pub(crate) text: String,
}

pub(crate) struct Rule {
    pub(crate) path: String,
    pub(crate) selector: String,
    pub(crate) when: Option<String>,
    pub(crate) limit: Option<String>,
    pub(crate) location: String,
}

impl From<RuleText> for Rule {
    fn from(rule: RuleText) -> Rule {
        Rule {
            location: rule.location(),
            path: rule.path,
            selector: rule.selector,
            when: rule.when,
            limit: rule.limit.map(|rate| rate.to_string()),
        }
    }
}

impl ActiveQuestion {
    /// A query, or the error in it.
    pub(super) fn new(
        page: &AdminUi,
        lists: Vec<List>,
        agent: Option<&str>,
        (kind, server, name): (ListKind, &str, &str),
        arguments: Option<ArgumentsText>,
    ) -> Result<ActiveQuestion, String> {
        let active = page.gateway().active();
        let Some(list) = lists.iter().find(|list| list.server.name() == server) else {
            let known = lists.iter().map(|list| list.server.name());
            return Err(match suggest::nearest(server, known) {
                Some(nearest) => {
                    format!("No server is named “{server}”. Did you mean “{nearest}”?")
                }
                None => format!("No server is named “{server}”."),
            });
        };
        let exposure = match kind {
            ListKind::Tools => active.policy.exposure(server),
            ListKind::Prompts => active.policy.prompt_exposure(server),
            ListKind::Resources | ListKind::ResourceTemplates => None,
        };
        if let Some(original) = exposure.and_then(|exposure| exposure.renamed_from(name)) {
            return Err(format!(
                "“{name}” is the display name of “{original}”; rules use original names. Ask about \
                 {server}/{original}."
            ));
        }
        let tool = match (kind, &list.tools) {
            (ListKind::Tools, Ok(catalogue)) => {
                let tools = catalogue.tools();
                let at = tools.id(name).and_then(|id| usize::try_from(id).ok());
                // A sanitized name still identifies its tool.
                let seen = || tools.tools().iter().find(|tool| sanitize(tool.name()) == name);
                at.and_then(|at| tools.tools().get(at)).or_else(seen).cloned()
            }
            (ListKind::Tools, Err(_)) => Some(Tool::named(name)),
            // Its name alone decides about a prompt or resource, listed or not.
            _ => Some(Tool::named(listed_name(list, kind, name).unwrap_or(name))),
        };
        let name = tool.as_ref().map_or(name, Tool::name);
        let is_tool = kind == ListKind::Tools;
        let hints = tool.as_ref().map(|tool| active.policy.hints(server, tool));
        let hints = hints.filter(|_| is_tool);
        let name = name.to_string();
        Ok(ActiveQuestion {
            agent: agent.map(String::from),
            kind,
            server: server.into(),
            name,
            arguments,
            hints: hints.unwrap_or_default(),
            tool,
            unlisted: ToolSet::new(Vec::new()),
            lists,
            active,
        })
    }

    fn asked(&self) -> PolicyQuery<'_> {
        let (policy, agent) = (&self.active.policy, self.agent.as_deref());
        let unknown = |list: &List| list.server.name() == self.server && list.tools.is_err();
        let usable = self.lists.iter().filter(|list| {
            policy.decide_server(agent, list.server.name()).verdict != Verdict::Deny
        });
        let offered = usable.map(|list| {
            let tools = list.tools.as_ref().map_or(&self.unlisted, |list| list.tools());
            (list.server.name(), tools)
        });
        PolicyQuery {
            claims: None,
            policy,
            agent,
            server: &self.server,
            name: &self.name,
            arguments: self.arguments.as_ref(),
            kind: subject(self.kind),
            list: self.arguments.is_none(),
            tool: self.tool.as_ref(),
            list_unknown: self.kind == ListKind::Tools && self.lists.iter().any(unknown),
            hints: &self.hints,
            offered: offered.collect(),
            naming: Some(&self.active.naming),
            redact: &self.active.redact,
            route: match self.kind {
                ListKind::Tools => self.active.discovery.route(policy, agent, &self.server),
                _ => self.active.discovery.route_to_others(agent),
            },
            quarantined: self
                .active
                .pins
                .quarantined(&self.server, self.kind, &self.name)
                .map(|changed| format!("it is quarantined: {}", changed.summary())),
        }
    }

    pub(super) fn answer(&self, page: &AdminUi) -> AnswerDetails {
        let asked = self.asked();
        let answer = asked.answer();
        let listing = asked.listing();
        let actions = listing.as_ref().and_then(|listing| listing.actions.clone());
        let listed = asked.is_listed();
        let refused = !listed
            || answer.decision.verdict == Verdict::Deny
            || (!asked.list && answer.decision.verdict == Verdict::Ask);
        let arguments = self.arguments.as_ref().map(|arguments| {
            let empty = arguments.is_empty();
            if empty { String::new() } else { arguments.text().to_string() }
        });
        let through = asked.ways(&answer).into_iter().find(|way| way.via == Via::Execute);
        let through = through.map(|way| Through {
            listed: way.listed,
            refusal: way.refusal.map(|refusal| lines(&refusal.text())),
        });
        let refusal = || lines(&asked.direct_refusal(&answer.decision).text());
        let owner = self.owner().filter(|_| listed);
        let sees = ListedTool {
            listed: listed && owner.is_none(),
            owner,
            through,
            refused,
            refusal: (refused && asked.is_about_a_tool()).then(refusal),
            called: asked.called(),
            actions,
            guarded: guards::any(page.reloader.begun(), asked.policy),
            enforced: self.active.enforced,
        };
        AnswerDetails {
            agent: self.agent.clone(),
            noun: noun(asked.kind),
            verb: match asked.kind {
                _ if asked.list => "lists",
                Kind::Tool => "calls",
                Kind::Prompt => "gets",
                Kind::Resource | Kind::Template => "reads",
            },
            server: self.server.clone(),
            tool: self.name.clone(),
            list: asked.list,
            verdict: answer.decision.verdict.as_str(),
            step: answer.decision.step.as_str(),
            rule: asked.policy.rule(&answer.decision).map(Rule::from),
            hints: self.hints.iter().map(String::from).collect(),
            list_unknown: asked.list_unknown,
            turned_away: self.agent.is_none() && !page.reloader.callers().contains(&None),
            layers: layers(&asked, &answer),
            note: asked.route_note().as_deref().map(pieces),
            reason: pieces(&answer.why),
            sees,
            link: self.address("explain", arguments.as_deref()),
            form: self.address("ask", arguments.as_deref()),
            allow: self.agent.as_deref().and_then(|agent| {
                let subject = (&*self.server, &*self.name);
                allow::address(agent, subject, answer.decision.step.as_str())
            }),
            arguments,
        }
    }

    fn address(&self, view: &str, arguments: Option<&str>) -> String {
        // The form marks agent names with a prefix.
        let mark = if view == "ask" { "=" } else { "" };
        let agent = self.agent.as_ref().map(|agent| encoded(&format!("{mark}{agent}")));
        let agent = agent.unwrap_or_default();
        let (server, name) = (encoded(&self.server), encoded(&self.name));
        let arguments = arguments.map(|arguments| format!("&args={}", encoded(arguments)));
        let arguments = arguments.unwrap_or_default();
        let kind = match self.kind {
            ListKind::Tools => String::new(),
            kind => format!("&kind={}", noun(subject(kind))),
        };
        format!("{view}?agent={agent}&server={server}&tool={name}{kind}{arguments}")
    }

    /// An earlier server that lists the same resource, if the agent may see it there.
    fn owner(&self) -> Option<String> {
        let key = listing::shared_key(self.kind, &self.name)?;
        let caller = Caller { agent: self.agent.as_deref(), claims: None };
        let is_owner = |list: &&List| {
            let same = |name: &&str| listing::shared_key(self.kind, name).as_ref() == Some(&key);
            let entries = entries(list, self.kind).iter().map(Entry::name);
            let same: Vec<&str> = entries.filter(same).collect();
            let about = (caller, list.server.name());
            let names = same.iter().copied();
            let decided = listing::decisions(&self.active.policy, about, self.kind, names);
            decided.iter().any(|one| one.decision.verdict != Verdict::Deny)
        };
        let earlier = self.lists.iter().take_while(|list| list.server.name() != self.server);
        earlier.into_iter().find(is_owner).map(|list| list.server.name().to_string())
    }
}

/// The entries of a server's list, if it is known.
fn entries(list: &List, kind: ListKind) -> &[Entry] {
    let of_kind = list.others.iter().find(|(of, _)| *of == kind);
    let known = of_kind.and_then(|(_, list)| list.as_ref().ok());
    known.map_or(&[], |list| list.entries())
}

/// The server's own name of an entry. A sanitized name still identifies its entry.
fn listed_name<'l>(list: &'l List, kind: ListKind, name: &str) -> Option<&'l str> {
    let names = || entries(list, kind).iter().map(Entry::name);
    names().find(|own| *own == name).or_else(|| names().find(|own| sanitize(own) == name))
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(String::from).collect()
}

fn layers(asked: &PolicyQuery<'_>, answer: &Answer) -> Vec<LayerTraceRow> {
    let layer = |layer: &toolward_policy::explain::LayerTrace| {
        let step = |step: &toolward_policy::explain::StepTrace| {
            let tried = step.tried.iter().filter_map(|tried| {
                let rule = asked.policy.rule_at(layer.layer, tried.rule)?.into();
                let (outcome, text) = (outcome(&tried.outcome).0, outcome_text(&tried.outcome));
                Some(TriedRule { rule, outcome, text })
            });
            Step {
                step: step.step.as_str(),
                action: step.action.clone(),
                note: step_note(step),
                tried: tried.collect(),
                decided: step.step == layer.decision.step,
            }
        };
        let name = asked.policy.layer_names().nth(usize::from(layer.layer));
        LayerTraceRow {
            number: layer.layer,
            name: name.unwrap_or("?").into(),
            agent: layer.agent.clone(),
            verdict: layer.decision.verdict.as_str(),
            decided: answer.decision.layer == Some(layer.layer),
            steps: layer.steps.iter().map(step).collect(),
        }
    };
    answer.explanation.layers.iter().map(layer).collect()
}
