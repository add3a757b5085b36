//! The policy engine of Toolward: which agent may use which MCP tool, and why.
//!
//! This crate only evaluates policies: it does no I/O, is not async, and knows neither configuration
//! files nor JSON-RPC. The gateway calls it before every tool call; an MCP server or an agent
//! framework can embed it in-process just as well.
//!
//! ```
//! use toolward_policy::source::{AgentSource, AgentsSource, KeyedList, LayerSource, RulesSource};
//! use toolward_policy::{Caller, Call, Policy, Source, Step, Tool, Verdict};
//! use serde_json::json;
//!
//! // agents:
//! //   reviewer:
//! //     allow: { servers: ["*"], tools: { github: ["hint:read-only", add_comment] } }
//! //     deny:  { tools: { "*": ["delete_*"] } }
//! let mut reviewer = AgentSource::default();
//! reviewer.allow.servers = vec!["*".into()];
//! reviewer.allow.tools = vec![KeyedList {
//!     key: "github".into(),
//!     entries: vec!["hint:read-only".into(), "add_comment".into()],
//!     ..KeyedList::default()
//! }];
//! let delete = vec!["delete_*".into()];
//! reviewer.deny.tools = vec![KeyedList { key: "*".into(), entries: delete, ..KeyedList::default() }];
//! let layer = LayerSource {
//!     name: "policy.yaml".into(),
//!     rules: RulesSource::Agents(AgentsSource {
//!         agents: vec![("reviewer".into(), reviewer)],
//!         ..AgentsSource::default()
//!     }),
//! };
//! let policy = Policy::compile(Source { layers: vec![layer], ..Source::default() }).unwrap();
//!
//! let definition = json!({"annotations": {"readOnlyHint": true}});
//! let get_issue = Tool::new("get_issue", definition.as_object().unwrap());
//! let caller = Caller::named("reviewer");
//!
//! let decision = policy.decide(caller, "github", &get_issue, &Call::default());
//! assert_eq!((decision.verdict, decision.step), (Verdict::Allow, Step::WildcardAllow));
//! assert_eq!(policy.rule(&decision).unwrap().path, "agents.reviewer.allow.tools.github[0]");
//!
//! let delete_repo = Tool::named("delete_repo");
//! let decision = policy.decide(caller, "github", &delete_repo, &Call::default());
//! assert_eq!((decision.verdict, decision.step), (Verdict::Deny, Step::WildcardDeny));
//! ```
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`source`] | a policy as plain data, built by loaders |
//! | [`Policy`] | the compiled policy: [`decide`](Policy::decide), [`list`](Policy::list), [`row`](Policy::row) |
//! | [`selector`], [`fnmatch`] | matching of a single entry |
//! | [`condition`] | `when`, in CEL |
//! | [`tool`], [`hints`], [`exposure`], [`call`] | the subjects of decisions |
//! | [`cell`] | the policy reduced to one tool and one agent |
//! | [`number`] | which numbers can be compared exactly |
//! | [`rate`] | rate limits of entries |
//! | [`explain`] | the reference matcher, step by step; a property test compares it with the cells |
//! | [`recorded`] | decisions on past calls, of which the audit log does not contain everything |
//! | [`reason`], [`why`] | decisions in words, for people |
//! | [`allowed`], [`refusal`] | refusals for agents: their text and data, and the calls an agent can make instead |
//! | [`analyse`] | what policies decide about everything that could be called: differences, and whether a call can ever be allowed |
//! | [`lint`], [`testing`] | lints for probable mistakes; tests inside a policy |
//!
//! # Deciding many times
//!
//! [`Policy::decide`] looks up the relevant entries for each call. To decide often, keep a [`Row`]:
//! the cells of all tools of a server for an agent, in which a call to a known tool is one lookup.
//! A row belongs to one policy, one agent, one server and one tool list ([`ToolSet::hash`]), and is
//! valid as long as none of them change.

mod action_argument;
pub mod allowed;
pub mod analyse;
pub mod approval;
mod argument_path;
mod ask;
mod automaton;
pub mod call;
pub mod catalogue;
pub mod cell;
pub mod condition;
pub mod decision;
mod enumerate;
mod exactness;
pub mod explain;
pub mod exposure;
pub mod fnmatch;
pub mod hints;
mod index;
mod layer;
pub mod lint;
mod listing;
mod mention;
pub mod number;
mod policy;
pub mod rate;
pub mod reason;
pub mod recorded;
pub mod refusal;
pub mod scope;
pub mod selector;
pub mod source;
mod spelling;
mod stated_hints;
pub mod testing;
pub mod text;
pub mod tool;
pub mod uri;
mod view;
pub mod why;
mod wording;

pub use automaton::common_name;
pub use call::{Arguments, Call, Caller};
pub use catalogue::Catalogue;
pub use cell::{Cell, Listing};
pub use decision::{AskingRule, Decision, LimitedRule, RuleRef, Step, Verdict};
pub use hints::{Annotations, Hints};
pub use layer::{CompileError, CompileProblem};
pub use policy::{Family, Policy, Row, Subject};
pub use rate::Rate;
pub use source::Source;
pub use tool::{Tool, ToolSet};
