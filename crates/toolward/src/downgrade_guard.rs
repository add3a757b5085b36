//! Rejects reloads that would weaken protection.
//!
//! A file that was truncated or half written is often still a valid configuration, with less in it. Policy
//! layers and the requirement to authenticate can be removed by a restart, not by a changed file.

use std::collections::HashMap;

use toolward_policy::testing::PolicyTest;

use crate::exit::Failure;
use crate::load::Input;
use crate::render::count;

/// The protections of a configuration that a reload must not remove.
#[derive(Debug, Clone, Default)]
pub(crate) struct Protection {
    /// The layers, by file and kind.
    layers: Vec<(String, &'static str)>,
    /// Unnamed callers are rejected.
    needs_name: bool,
    agents: usize,
    tests: usize,
}

impl Protection {
    pub(crate) fn of(input: &Input) -> Protection {
        // A gateway that denies everything because of invalid files has no protections to keep.
        if input.denying.is_some() {
            return Protection::default();
        }
        let policy = &input.policy;
        let names = policy.layer_names().map(String::from);
        let never = |test: &PolicyTest| test.never.as_ref().map_or(0, |never| never.calls.len());
        let tests = input.loaded.tests.iter();
        let tests = tests.map(|test| test.cases.len() + never(test)).sum();
        Protection {
            layers: names.zip(policy.layer_kinds()).collect(),
            needs_name: input.needs_name(),
            agents: policy.agents().len().max(input.loaded.config.agents.len()),
            tests,
        }
    }

    /// Rejects a configuration with fewer protections.
    pub(crate) fn holds_against(&self, next: &Protection) -> Result<(), Failure> {
        let refuse = |what: String| {
            Err(Failure::invalid(format!(
                "error: {what}\n  help: this may be caused by a truncated file, so it is rejected; if \
                 it is intended, restart the gateway"
            )))
        };
        if !self.layers.is_empty() && next.layers.is_empty() {
            return refuse("no policy would be left, and everything would be allowed".into());
        }
        let mut left: HashMap<&(String, &str), usize> = HashMap::new();
        for layer in &next.layers {
            *left.entry(layer).or_default() += 1;
        }
        for layer in &self.layers {
            match left.get_mut(layer).filter(|left| **left > 0) {
                Some(left) => *left -= 1,
                None => {
                    let (file, kind) = (&layer.0, layer.1);
                    return refuse(format!("the {kind} layer of {file} would be removed"));
                }
            }
        }
        if self.needs_name && !next.needs_name {
            return refuse("callers would no longer need a name".into());
        }
        if self.agents > 0 && next.agents == 0 {
            return refuse("no agent would be left".into());
        }
        if self.tests > 0 && next.tests == 0 {
            let tests = count(self.tests, "test");
            return refuse(format!("the policy had {tests}, and would have none"));
        }
        Ok(())
    }
}
