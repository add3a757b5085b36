//! Rules compared with the tools that are known.

use super::{LintKind, Linter};
use crate::decision::{RuleRef, Side};
use crate::layer::{List, Rule};
use crate::selector::fold;
use crate::source::Case;
use crate::tool::Tool;

impl Linter<'_> {
    /// Compares a rule with the known tools.
    pub(super) fn tools(&mut self, rule: &Rule, case: Case, keyed: Option<&List>, at: RuleRef) {
        let applies = |server: &str| keyed.is_none_or(|list| list.key.matches(&fold(server, case)));
        let mut all_known = true;
        let mut words = Vec::new();
        let (mut matched, mut as_tool, mut as_action) = (false, false, false);
        for server in self.catalogue.servers().filter(|server| applies(server)) {
            let Some(tools) = self.catalogue.tools(server) else {
                all_known = false;
                continue;
            };
            for tool in tools.tools() {
                let said = self.says(rule, case, keyed.is_none(), server, tool, at.side);
                matched |= said.tool || said.action || said.hint;
                as_tool |= said.tool;
                as_action |= said.action;
            }
            words.extend(tools.tools().iter().map(|tool| tool.name().to_string()));
            let renamed = self
                .policy
                .exposure(server)
                .is_some_and(|exposure| exposure.is_taken(rule.selector.written()));
            if renamed && !said_by_original(tools.tools(), rule) {
                let message = format!(
                    "`{}` is a display name on `{server}`; rules match original names",
                    rule.selector.written()
                );
                self.push(LintKind::DisplayName, at, message, None);
                return;
            }
        }
        let text = rule.selector.written();
        if as_tool && as_action && !rule.selector.is_wildcard() {
            let message = format!(
                "`{text}` is the name of a tool and can also be read as an action of another one; \
                 it covers both"
            );
            self.push(LintKind::ToolOrAction, at, message, None);
        } else if !matched && all_known && !words.is_empty() {
            let message = format!("`{text}` matches no known tool");
            let misspelt = (!rule.selector.is_wildcard()).then(|| (text.to_string(), words));
            self.push(LintKind::NoKnownTool, at, message, misspelt);
        }
    }

    fn says(
        &self,
        rule: &Rule,
        case: Case,
        qualified: bool,
        server: &str,
        tool: &Tool,
        side: Side,
    ) -> Said {
        let name = fold(tool.name(), case);
        let long = qualified.then(|| format!("{}.{name}", fold(server, case)));
        let names = [Some(&*name), long.as_deref()];
        let declares = tool.declares_action(self.policy.action_keys(server, tool.name()));
        let by_pattern = side == Side::Deny || declares;
        let any = |test: &dyn Fn(&str) -> bool| names.iter().flatten().any(|name| test(name));
        Said {
            tool: any(&|name| rule.selector.names_tool(name)),
            action: any(&|name| rule.selector.actions_of(name, by_pattern).next().is_some()),
            hint: rule.selector.tags().is_some()
                && rule.selector.carried_by(&self.policy.hints(server, tool)),
        }
    }
}

struct Said {
    tool: bool,
    action: bool,
    hint: bool,
}

fn said_by_original(tools: &[Tool], rule: &Rule) -> bool {
    tools.iter().any(|tool| tool.name() == rule.selector.written())
}
