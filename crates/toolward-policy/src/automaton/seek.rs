//! Searches that need not visit every state: one that can lead to more replaces others.

use std::ops::ControlFlow;

use hashbrown::{HashMap, HashSet};

use super::{Automaton, Group, State, TooLarge, written};
use crate::fnmatch::Token;

/// A search for texts that match some patterns and avoid others.
pub(crate) struct Wanted<'a> {
    /// One pattern of each of these groups must match.
    pub(crate) groups: &'a [Group],
    /// None of these may match.
    pub(crate) avoid: &'a Group,
}

/// A state of a search that a better one may replace: its number, the positions of wanted patterns, and those of avoided
/// ones.
struct Rival {
    number: usize,
    wanted: State,
    avoided: State,
}

/// The meaning of a pattern for [`Automaton::seek`].
#[derive(Clone, Copy, Default)]
struct Role {
    wanted: bool,
    /// Of the first group of wanted patterns.
    first: bool,
    avoided: bool,
}

impl Automaton {
    /// Visits texts that match the wanted patterns, such that every other such text can be found from a state
    /// that was visited: if no text is visited, no text matches. A state in which more of the wanted and fewer of
    /// the avoided patterns can match replaces others, so this stays small where [`explore`](Self::explore)
    /// does not.
    pub(crate) fn seek<B>(
        &self,
        start: &State,
        budget: usize,
        wanted: &Wanted<'_>,
        mut visit: impl FnMut(String) -> ControlFlow<B>,
    ) -> Result<(Option<B>, usize), TooLarge> {
        let roles = self.roles(wanted);
        let role = |at: &u32| roles[self.owner(*at) as usize];
        let matters = |at: &u32| role(at).wanted || role(at).avoided;
        let start: State = start.iter().copied().filter(matters).collect();
        let possible = |state: &State| {
            wanted.groups.iter().all(|group| self.is_alive(state, group))
                && !self.settled(state).any(|number| roles[number as usize].avoided)
        };
        // By the positions of the first group, of which there are few.
        let mut known: HashMap<State, Vec<Rival>> = HashMap::new();
        let mut order: Vec<(State, u32, char)> = vec![(start, 0, '\0')];
        let mut replaced: HashSet<usize> = HashSet::new();
        let (mut used, mut at) = (0, 0);
        while at < order.len() {
            let state = order[at].0.clone();
            let matched: Vec<u32> = self.matched(&state).collect();
            let has = |group: &Group| matched.iter().any(|number| group.contains(number));
            if at > 0
                && !has(wanted.avoid)
                && wanted.groups.iter().all(has)
                && let ControlFlow::Break(found) = visit(written(&order, at))
            {
                return Ok((Some(found), used));
            }
            let successors = match replaced.contains(&at) {
                true => Vec::new(),
                false => self.characters(&state),
            };
            for c in successors {
                let next: State = self.step(&state, c).iter().copied().filter(matters).collect();
                if !possible(&next) {
                    continue;
                }
                let own: State = next.iter().filter(|at| role(at).first).copied().collect();
                let (more, avoided): (Vec<u32>, Vec<u32>) =
                    next.iter().partition(|at| role(at).wanted);
                let number = order.len();
                let new = Rival { number, wanted: more.into(), avoided: avoided.into() };
                let rivals = known.entry(own).or_default();
                if rivals.iter().any(|rival| self.beats(rival, &new)) {
                    continue;
                }
                rivals.retain(|rival| {
                    let stays = !self.beats(&new, rival);
                    stays || !replaced.insert(rival.number)
                });
                used += 3 * size_of_val(&*next) + 160;
                if used > budget {
                    return Err(TooLarge);
                }
                rivals.push(new);
                order.push((next, at as u32, c));
            }
            at += 1;
        }
        Ok((None, used))
    }

    fn roles(&self, wanted: &Wanted<'_>) -> Vec<Role> {
        let mut roles = vec![Role::default(); self.patterns.len()];
        for (at, group) in wanted.groups.iter().enumerate() {
            for number in group {
                let role = &mut roles[*number as usize];
                role.wanted = true;
                role.first |= at == 0;
            }
        }
        wanted.avoid.iter().for_each(|number| roles[*number as usize].avoided = true);
        roles
    }

    /// Visits states such that for every other state there is one of them in which fewer of the avoided patterns can
    /// match, and the same others. Returns the memory that was used.
    pub(crate) fn frontier(
        &self,
        start: State,
        budget: usize,
        is_avoided: impl Fn(u32) -> bool,
        mut visit: impl FnMut(&State, String),
    ) -> Result<usize, TooLarge> {
        let mut known: HashMap<State, Vec<(usize, State)>> = HashMap::new();
        let mut order: Vec<(State, u32, char)> = vec![(start, 0, '\0')];
        let mut replaced: HashSet<usize> = HashSet::new();
        let (mut used, mut at) = (0, 0);
        while at < order.len() {
            if replaced.contains(&at) {
                at += 1;
                continue;
            }
            let state = order[at].0.clone();
            visit(&state, written(&order, at));
            for c in self.characters(&state) {
                let next = self.step(&state, c);
                let (avoided, others): (Vec<u32>, Vec<u32>) =
                    next.iter().partition(|at| is_avoided(self.owner(**at)));
                let rivals = known.entry(others.into()).or_default();
                if rivals.iter().any(|(_, fewer)| self.covers(&avoided, fewer)) {
                    continue;
                }
                rivals.retain(|(number, more)| {
                    let stays = !self.covers(more, &avoided);
                    stays || !replaced.insert(*number)
                });
                used += 3 * size_of_val(&*next) + 160;
                if used > budget {
                    return Err(TooLarge);
                }
                rivals.push((order.len(), avoided.into()));
                order.push((next, at as u32, c));
            }
            at += 1;
        }
        Ok(used)
    }

    /// Whether every text that leads from `other` to a match also does from `one`.
    fn beats(&self, one: &Rival, other: &Rival) -> bool {
        self.covers(&other.avoided, &one.avoided) && self.covers(&one.wanted, &other.wanted)
    }

    /// Whether every text that positions of `few` accept is accepted from `many`, pattern by pattern.
    fn covers(&self, many: &[u32], few: &[u32]) -> bool {
        few.len() <= many.len() + 64
            && few.iter().all(|at| {
                let owner = &self.patterns[self.owners[*at as usize] as usize];
                let later = many.partition_point(|other| other < at);
                let mut later = many[later..].iter().take_while(|other| **other <= owner.end);
                later.any(|other| {
                    other == at
                        || (*other < owner.end && self.tokens[*other as usize] == Token::Run)
                })
            })
    }
}
