//! What an agent is told when a call is refused: the one place that words it.

use std::borrow::Cow;

use crate::call::Caller;
use crate::decision::Verdict;
use crate::layer::{List, Rule, Rules};
use crate::policy::{Policy, Row};
use crate::selector::fold;
use crate::view::server_step;

/// At most this many entries are named; then `…` stands for the rest.
const MOST_NAMED: usize = 50;

/// What the agent may use on one server: its row.
pub struct Offer<'a> {
    pub server: &'a str,
    pub row: &'a Row,
}

/// The text of a refusal, and the list it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub message: String,
    pub allowed_tools: Vec<String>,
}

/// So much of a caller's own words is repeated.
const MOST_REPEATED: usize = 200;

/// A caller's own words, as far as an answer repeats them: no answer grows with what it refuses.
pub fn brief(text: &str) -> Cow<'_, str> {
    cut(text, MOST_REPEATED)
}

/// At most so many characters; `…` stands for the rest.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
        None => text.into(),
    }
}

/// The refusal of a call by the name and action it was sent with. `allowed` depends on agent and
/// policy alone, so that a refusal never tells whether the tool exists.
pub fn refusal(allowed: &[String], tool: &str, action: Option<&str>) -> Refusal {
    let mut allowed_tools = allowed.to_vec();
    if allowed_tools.len() > MOST_NAMED {
        allowed_tools.truncate(MOST_NAMED);
        allowed_tools.push("…".into());
    }
    let what = match action {
        Some(action) => format!("{}.{}", brief(tool), brief(action)).into(),
        None => brief(tool),
    };
    let allowed = match allowed_tools.as_slice() {
        [] => "nothing".into(),
        some => some.join(", "),
    };
    let message = format!("{what} is not permitted. Allowed: {allowed}");
    Refusal { message, allowed_tools }
}

impl Policy {
    /// What the agent may use, in the words of the policy: allowlist entries as written,
    /// `server/selector` for each allow entry, `server/*` for an implicit grant.
    pub fn allowed_tools(&self, caller: Caller<'_>, offers: &[Offer<'_>]) -> Vec<String> {
        if self.layers.is_empty() {
            return offers.iter().map(|offer| format!("{}/*", offer.server)).collect();
        }
        let mut named = Vec::new();
        for layer in &self.layers {
            match &layer.rules {
                Rules::ReadOnly => named.push("hint:read-only".into()),
                Rules::Allowlist(list) => {
                    for rule in &list.tools.rules {
                        let seen =
                            |offer: &Offer<'_>| self.sees(caller, offer, rule, Some(offer.server));
                        if rule.selector.is_wildcard() {
                            named.push(rule.selector.written().to_string());
                        } else if let Some(shown) = offers.iter().find_map(seen) {
                            named.push(shown);
                        }
                    }
                }
                Rules::Agents(agents) => {
                    let Some(at) = agents.agent(caller.agent) else {
                        return Vec::new();
                    };
                    let agent = &agents.agents[at as usize];
                    for offer in offers {
                        let server = fold(offer.server, agent.case);
                        if server_step(agent, at, &server).verdict == Verdict::Deny {
                            continue;
                        }
                        let lists: Vec<&List> = agent
                            .allow
                            .tools
                            .iter()
                            .filter(|list| !list.rules.is_empty() && list.key.matches(&server))
                            .collect();
                        if lists.is_empty() {
                            named.push(format!("{}/*", offer.server));
                        }
                        for rule in lists.iter().flat_map(|list| &list.rules) {
                            let entry = if rule.selector.is_wildcard() {
                                Some(rule.selector.written().to_string())
                            } else {
                                self.sees(caller, offer, rule, None)
                            };
                            named.extend(entry.map(|entry| format!("{}/{entry}", offer.server)));
                        }
                    }
                }
            }
        }
        let mut seen = hashbrown::HashSet::new();
        named.retain(|entry| seen.insert(entry.clone()));
        named
    }

    /// An exact selector as the agent may read it: under the display name, and only where a tool
    /// that it names is in the agent's listing.
    fn sees(
        &self,
        caller: Caller<'_>,
        offer: &Offer<'_>,
        rule: &Rule,
        qualified: Option<&str>,
    ) -> Option<String> {
        let written = rule.selector.written();
        offer.row.iter().find_map(|(tool, cell)| {
            if cell.list(caller).decision.verdict == Verdict::Deny {
                return None;
            }
            let shown = match self.exposure(offer.server) {
                Some(exposure) => exposure.show(tool.name())?.name,
                None => tool.name().into(),
            };
            let prefix = qualified.map(|server| format!("{server}."));
            let spelled = [Some(""), prefix.as_deref()];
            spelled.into_iter().flatten().find_map(|prefix| {
                let rest = strip_folded(written, prefix)?;
                let rest = strip_folded(rest, tool.name())?;
                (rest.is_empty() || rest.starts_with('.')).then(|| format!("{prefix}{shown}{rest}"))
            })
        })
    }
}

fn strip_folded<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}
