//! Ended sessions whose ids have not expired yet. The list survives a restart.
//!
//! Each is stored until its id expires. For an agent that ends very many sessions, a point in time is
//! stored instead: all of its sessions that began earlier have ended. So the file stays small no matter
//! what an agent does, and no agent can end the sessions of another.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use hashbrown::HashMap;
use sha2::{Digest, Sha256};

use crate::clock;
use crate::lock::LockUnpoisoned;

/// Maximum lifetime of a session, in seconds.
pub(super) const LONGEST: u64 = 86_400;

/// Maximum number of ended sessions of one agent that are stored individually.
const MAX_ENDED: usize = 10_000;
/// Stale lines that the file may contain before it is rewritten.
const MAX_STALE_LINES: usize = 1_000;
const NOT_BEFORE: &str = "not-before";

pub(super) struct EndedSessions {
    path: PathBuf,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    /// When each id expires, and its agent.
    sessions: HashMap<u128, (u64, AgentTag)>,
    counts: HashMap<AgentTag, usize>,
    /// All sessions that an agent began before this second have ended.
    not_before: HashMap<AgentTag, u64>,
    /// Lines in the file.
    lines: usize,
}

/// A hash of an agent's name, of fixed size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct AgentTag(u64);

impl AgentTag {
    fn of(agent: Option<&str>) -> AgentTag {
        let Some(agent) = agent else { return AgentTag(0) };
        let digest = Sha256::digest(agent.as_bytes());
        AgentTag(digest.iter().take(8).fold(0, |tag, byte| tag << 8 | u64::from(*byte)))
    }
}

impl EndedSessions {
    pub(super) fn in_directory(state: &Path) -> EndedSessions {
        let path = state.join("ended-sessions");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let mut state = Entries::read(&text);
        state.forget_expired(clock::seconds());
        let ended = EndedSessions { path, entries: Mutex::default() };
        if state.lines > state.needed() {
            let _ = ended.rewrite(&mut state);
        }
        *ended.entries() = state;
        ended
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.locked()
    }

    /// Whether a session that began at this second has ended.
    pub(super) fn contains(&self, id: u128, agent: Option<&str>, began: u64) -> bool {
        let state = self.entries();
        let before = state.not_before.get(&AgentTag::of(agent));
        state.sessions.contains_key(&id) || before.is_some_and(|before| began < *before)
    }

    /// Adds an ended session whose id is valid until this second.
    pub(super) fn add(&self, id: u128, agent: Option<&str>, until: u64) {
        let (now, agent) = (clock::seconds(), AgentTag::of(agent));
        let mut state = self.entries();
        let line = state.add(id, agent, until, now);
        state.lines += 1;
        // If the write fails, the session is ended only until this process exits.
        let _ = match state.lines > 2 * state.needed() + MAX_STALE_LINES {
            true => {
                state.forget_expired(now);
                self.rewrite(&mut state)
            }
            false => self.append(&line),
        };
    }

    fn append(&self, line: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path)?;
        file.write_all(line.as_bytes())
    }

    /// Rewrites the file with only the current entries, and replaces it atomically.
    fn rewrite(&self, state: &mut Entries) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file =
            OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(state.text().as_bytes())?;
        drop(file);
        std::fs::rename(&new, &self.path)?;
        state.lines = state.needed();
        Ok(())
    }
}

impl Entries {
    fn read(text: &str) -> Entries {
        let mut state = Entries::default();
        for line in text.lines() {
            state.lines += 1;
            let mut words = line.split(' ');
            let (Some(first), Some(second)) = (words.next(), words.next()) else { continue };
            let tag = words.next().and_then(|tag| u64::from_str_radix(tag, 16).ok());
            let (agent, Ok(second)) = (AgentTag(tag.unwrap_or(0)), second.parse()) else {
                continue;
            };
            if first == NOT_BEFORE {
                state.not_before.insert(agent, second);
            } else if let Ok(id) = u128::from_str_radix(first, 16) {
                state.insert(id, agent, second);
            }
        }
        state
    }

    fn insert(&mut self, id: u128, agent: AgentTag, until: u64) {
        if self.sessions.insert(id, (until, agent)).is_none() {
            *self.counts.entry(agent).or_default() += 1;
        }
    }

    /// Adds a session, or all sessions that its agent has begun so far. Returns the line for the file.
    fn add(&mut self, id: u128, agent: AgentTag, until: u64, now: u64) -> String {
        self.insert(id, agent, until);
        if self.counts.get(&agent).is_some_and(|count| *count > MAX_ENDED) {
            self.sessions.retain(|_, (_, of)| *of != agent);
            self.counts.remove(&agent);
            self.not_before.insert(agent, now + 1);
            return format!("{NOT_BEFORE} {} {:016x}\n", now + 1, agent.0);
        }
        format!("{id:032x} {until} {:016x}\n", agent.0)
    }

    fn forget_expired(&mut self, now: u64) {
        self.sessions.retain(|_, (until, _)| *until > now);
        self.counts.clear();
        for (_, agent) in self.sessions.values() {
            *self.counts.entry(*agent).or_default() += 1;
        }
        self.not_before.retain(|_, before| *before + LONGEST > now);
    }

    /// The number of lines that a rewritten file has.
    fn needed(&self) -> usize {
        self.sessions.len() + self.not_before.len()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (agent, before) in &self.not_before {
            let _ = writeln!(text, "{NOT_BEFORE} {before} {:016x}", agent.0);
        }
        for (id, (until, agent)) in &self.sessions {
            let _ = writeln!(text, "{id:032x} {until} {:016x}", agent.0);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_stays_small_whatever_an_agent_does() {
        let directory = tempfile::tempdir().unwrap();
        let now = clock::seconds();
        let ended = EndedSessions::in_directory(directory.path());
        ended.add(1, Some("quiet"), now + 100);
        for id in 2..25_000 {
            ended.add(id, Some("noisy"), now + 100);
        }
        let text = std::fs::read_to_string(directory.path().join("ended-sessions")).unwrap();
        assert!(text.len() < 2_000_000, "{}", text.len());
        // The same holds after a restart.
        for ended in [&ended, &EndedSessions::in_directory(directory.path())] {
            assert!(ended.contains(1, Some("quiet"), now));
            assert!((2..25_000).all(|id| ended.contains(id, Some("noisy"), now)));
            assert!(!ended.contains(99_999, Some("quiet"), now), "another agent is not affected");
            assert!(!ended.contains(99_999, Some("noisy"), now + 10));
        }
    }

    #[test]
    fn expired_sessions_are_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ended-sessions");
        let now = clock::seconds();
        let valid = format!("{:032x} {}", 7, now + 100);
        let expired: String = (8..2_000).map(|id| format!("{id:032x} {}\n", now - 1)).collect();
        std::fs::write(&path, format!("{expired}{valid}\n")).unwrap();
        let ended = EndedSessions::in_directory(directory.path());
        assert!(ended.contains(7, None, now) && !ended.contains(8, None, now));
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    }
}
