//! The graph between the children of one module: its edges, its order, its cycles.

use std::collections::{BTreeMap, BTreeSet};

/// Which child imports which sibling, and the modules inside it that do.
#[derive(Default)]
pub struct Graph {
    edges: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

impl Graph {
    pub fn add(&mut self, from: &str, to: &str, by: String) {
        self.edges.entry(to.into()).or_default();
        let from = self.edges.entry(from.into()).or_default();
        from.entry(to.into()).or_default().insert(by);
    }

    pub fn edges(&self) -> usize {
        self.edges.values().map(BTreeMap::len).sum()
    }

    /// Each module with those it imports, importers first.
    pub fn in_order(&self) -> Vec<(&str, Vec<&str>)> {
        let depth: BTreeMap<&String, usize> =
            self.edges.keys().map(|name| (name, self.reach(name).len())).collect();
        let mut names: Vec<&String> = self.edges.keys().collect();
        // A module reaches more modules than any that it imports, so this is an order from top to bottom.
        names.sort_by_key(|name| (std::cmp::Reverse(depth.get(name)), *name));
        let line = |name: &'_ String| self.edges[name].keys().map(String::as_str).collect();
        names.into_iter().map(|name| (name.as_str(), line(name))).collect()
    }

    /// The groups of modules that reach each other.
    pub fn cycles(&self) -> Vec<BTreeSet<String>> {
        let reach: BTreeMap<&String, BTreeSet<String>> =
            self.edges.keys().map(|from| (from, self.reach(from))).collect();
        let mut cycles: Vec<BTreeSet<String>> = Vec::new();
        for (from, reached) in &reach {
            if !reached.contains(*from) || cycles.iter().any(|cycle| cycle.contains(*from)) {
                continue;
            }
            let back = |to: &&String| reach.get(to).is_some_and(|reached| reached.contains(*from));
            cycles.push(reached.iter().filter(back).cloned().collect());
        }
        cycles
    }

    /// The edges inside a group, with the modules that cause each.
    pub fn between(&self, group: &BTreeSet<String>) -> Vec<(&str, &str, Vec<&str>)> {
        let edges = self.edges.iter().filter(|(from, _)| group.contains(*from));
        let edges = edges.flat_map(|(from, to)| {
            let inside = to.iter().filter(|(to, _)| group.contains(*to));
            inside.map(move |(to, by)| {
                (from.as_str(), to.as_str(), by.iter().map(String::as_str).collect())
            })
        });
        edges.collect()
    }

    /// Every module that can be reached from this one.
    fn reach(&self, from: &str) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(at) = next.pop() {
            for to in self.edges.get(at).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(to.clone()) {
                    next.push(to);
                }
            }
        }
        seen
    }
}
