//! The position of a watcher: the newest decision it has seen, and the latest completed one. A call that was in
//! flight is sent again once it has completed.

use serde_json::Value;
use toolward_gateway::audit::line::time;

/// Written as `ID` or `ID/TIME`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ResumePoint {
    id: String,
    ended: String,
}

impl ResumePoint {
    pub(super) fn parse(text: &str) -> ResumePoint {
        let (id, ended) = text.split_once('/').unwrap_or((text, ""));
        if !ended.is_empty() {
            return ResumePoint { id: id.into(), ended: ended.into() };
        }
        let begun = id.split('-').next().and_then(|at| u64::from_str_radix(at, 16).ok());
        ResumePoint { id: id.into(), ended: begun.map(time).unwrap_or_default() }
    }

    /// The position if there are no rows yet.
    pub(super) fn is_nothing(&self) -> bool {
        self.id.is_empty()
    }

    /// Whether a row was written or completed since.
    pub(super) fn is_before(&self, row: &Value) -> bool {
        let text = |name: &str| row[name].as_str().unwrap_or_default();
        text("id") > self.id.as_str() || text("ended") > self.ended.as_str()
    }

    /// Advances past a row that was sent.
    pub(super) fn tell(&mut self, row: &Value) {
        let later = |kept: &mut String, name: &str| {
            if let Some(text) = row[name].as_str().filter(|text| *text > kept.as_str()) {
                *kept = text.into();
            }
        };
        later(&mut self.id, "id");
        later(&mut self.ended, "ended");
    }
}

impl std::fmt::Display for ResumePoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ended.is_empty() {
            true => f.write_str(&self.id),
            false => write!(f, "{}/{}", self.id, self.ended),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_sent_call_is_sent_again_only_when_it_ends() {
        let under_way = json!({"id": "0000000f4240-a-1"});
        let ended = json!({"id": "0000000f4240-a-1", "ended": "1970-01-01T00:00:02.000000Z"});
        let mut after = ResumePoint::default();
        assert!(after.is_before(&under_way));
        after.tell(&under_way);
        assert!(!after.is_before(&under_way) && after.is_before(&ended));
        after.tell(&ended);
        assert!(!after.is_before(&ended));
        assert_eq!(ResumePoint::parse(&after.to_string()), after);
        // A bare id contains its time.
        let after = ResumePoint::parse("0000000f4240-a-1");
        assert!(after.is_before(&ended) && !after.is_before(&under_way));
    }
}
