//! What a reload must not take away. A file that was cut short, or written by something that failed half
//! way, is often still a configuration: one with less in it. What stands between callers and servers goes
//! by a restart, not by the change of a file.

use std::collections::HashMap;

use crate::exit::Failure;
use crate::load::Input;
use crate::render::count;

/// What stands between callers and servers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Protection {
    /// The layers, by the file that they stand in and their kind.
    layers: Vec<(String, &'static str)>,
    /// Callers without a name are turned away.
    needs_name: bool,
    agents: usize,
    tests: usize,
}

impl Protection {
    pub(crate) fn of(input: &Input) -> Protection {
        // What stands in for files that were wrong protects nothing that anybody wrote.
        if input.denying.is_some() {
            return Protection::default();
        }
        let policy = &input.policy;
        let names = policy.layer_names().map(String::from);
        let tests = input.loaded.tests.iter().map(|test| test.cases.len()).sum();
        Protection {
            layers: names.zip(policy.layer_kinds()).collect(),
            needs_name: input.needs_name(),
            agents: policy.agents().len().max(input.loaded.config.agents.len()),
            tests,
        }
    }

    /// Refuses to be replaced by less.
    pub(crate) fn holds_against(&self, next: &Protection) -> Result<(), Failure> {
        let refuse = |what: String| {
            Err(Failure::invalid(format!(
                "error: {what}\n  help: a file that was cut short looks like this, so that it is not \
                 taken up; to mean it, restart the gateway"
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
                    return refuse(format!("the {kind} layer of {file} would be gone"));
                }
            }
        }
        if self.needs_name && !next.needs_name {
            return refuse("callers would no longer need a name".into());
        }
        if self.agents > 0 && next.agents == 0 {
            return refuse(format!("no agent would be left of {}", self.agents));
        }
        if self.tests > 0 && next.tests == 0 {
            let tests = count(self.tests, "test");
            return refuse(format!("the policy had {tests}, and would have none"));
        }
        Ok(())
    }
}
