//! The policy engine of Toolward: which agent may use which MCP tool, and why.
//!
//! This crate is the meaning of a policy and nothing else: it does no I/O, is not async, and knows
//! neither configuration files nor JSON-RPC. A gateway asks it before every call; an MCP server or
//! an agent framework can ask it in-process just as well.
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
//!         deny_on_missing_agent: true,
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
//! # The rooms
//!
//! | module | is |
//! |---|---|
//! | [`source`] | what a policy says, as plain data: loaders build it |
//! | [`Policy`] | the compiled policy: [`decide`](Policy::decide), [`list`](Policy::list), [`row`](Policy::row) |
//! | [`selector`], [`fnmatch`] | what one entry matches |
//! | [`condition`] | `when`, in CEL |
//! | [`tool`], [`hints`], [`exposure`], [`call`] | what is asked about |
//! | [`cell`] | one tool's verdict for one agent, ready to be asked |
//! | [`number`] | which numbers can be decided on |
//! | [`rate`] | how often an entry lets calls pass |
//! | [`explain`] | the plain matcher, step by step; a property test says that it agrees with the cells |
//! | [`reason`], [`why`] | decisions in words, for people |
//! | [`allowed`], [`refusal`] | refusals, for agents: what they can call instead, and the text and data they get |
//! | [`lint`], [`testing`] | rules that cannot mean what was wanted; tests that stand in a policy |
//!
//! # Deciding many times
//!
//! [`Policy::decide`] finds the entries that matter each time. Whoever decides often keeps a
//! [`Row`]: the verdicts of all tools of a server for an agent, in which a call to a known tool is
//! one look-up. A row belongs to one policy, one agent, one server and one list
//! ([`ToolSet::hash`]); none of these change under it.

mod action_argument;
pub mod allowed;
mod argument_path;
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
pub mod refusal;
pub mod selector;
pub mod source;
mod stated_hints;
pub mod testing;
pub mod text;
pub mod tool;
pub mod uri;
mod view;
pub mod why;
mod wording;

pub use call::{Arguments, Call, Caller};
pub use catalogue::Catalogue;
pub use cell::{Cell, Listing};
pub use decision::{Decision, LimitedRule, RuleRef, Step, Verdict};
pub use hints::{Annotations, Hints};
pub use layer::{CompileError, CompileProblem};
pub use policy::{Policy, Row, Subject};
pub use rate::Rate;
pub use source::Source;
pub use tool::{Tool, ToolSet};
