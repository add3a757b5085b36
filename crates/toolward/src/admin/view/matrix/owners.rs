//! Resources that several servers list: each belongs to the first server that an agent may use, and is hidden on the
//! others, as in the list that the agent gets.

use std::collections::HashMap;
use std::sync::Arc;

use toolward_wire::list::ListKind;

use super::group::Group;
use super::verdict::is_closed;

/// The cells of resources that another server owns. Groups are identified by their index in the table.
#[derive(Default)]
pub(super) struct Owners {
    /// The owner by group, row and column.
    cells: HashMap<(usize, usize, usize), usize>,
    /// The number of such cells by group and column.
    hidden: HashMap<(usize, usize), usize>,
}

impl Owners {
    pub(super) fn new(groups: &[Arc<Group>], columns: usize) -> Owners {
        let mut owners = Owners::default();
        for kind in [ListKind::Resources, ListKind::ResourceTemplates] {
            let of_kind = groups.iter().enumerate().filter(|(_, group)| group.kind == kind);
            let of_kind: Vec<(usize, &Arc<Group>)> = of_kind.collect();
            if of_kind.len() < 2 {
                continue;
            }
            let mut places: HashMap<&str, Vec<(usize, usize)>> = HashMap::new();
            for (at, group) in of_kind {
                for (line, entry) in group.lines.iter().enumerate() {
                    places.entry(&*entry.key).or_default().push((at, line));
                }
            }
            for places in places.values().filter(|places| places.len() > 1) {
                (0..columns).for_each(|column| owners.add(groups, places, column));
            }
        }
        owners
    }

    /// Adds the places at which an agent does not see a resource, because an earlier one owns it.
    fn add(&mut self, groups: &[Arc<Group>], places: &[(usize, usize)], column: usize) {
        let allowed = |(group, line): &&(usize, usize)| {
            let cell = groups.get(*group).and_then(|group| group.cell(*line, column));
            cell.is_some_and(|cell| !is_closed(cell.verdict))
        };
        let mut allowed = places.iter().filter(allowed);
        let Some((owner, _)) = allowed.next() else { return };
        for (group, line) in allowed {
            self.cells.insert((*group, *line, column), *owner);
            *self.hidden.entry((*group, column)).or_default() += 1;
        }
    }

    pub(super) fn of(&self, group: usize, line: usize, column: usize) -> Option<usize> {
        self.cells.get(&(group, line, column)).copied()
    }

    pub(super) fn hidden(&self, group: usize, column: usize) -> usize {
        self.hidden.get(&(group, column)).copied().unwrap_or(0)
    }
}
