//! The name and severity of a record, for systems that collect events.

/// The name of an event, and its severity from 0 to 10.
pub(super) fn judged(
    kind: &str,
    verdict: Option<&str>,
    outcome: Option<&str>,
) -> (&'static str, u8) {
    match (kind, verdict, outcome) {
        ("gap", ..) => ("records are missing", 9),
        ("head", ..) => ("the head of the audit log was replaced", 7),
        ("recovery", ..) => ("records are written again", 7),
        ("repair", ..) => ("audit log repaired", 5),
        ("turned-away", ..) => ("requests rejected", 5),
        ("outcome", _, Some("ok")) => ("tool call ended", 2),
        ("outcome", ..) => ("tool call failed", 4),
        ("unavailable", ..) => ("server unavailable", 4),
        ("list", ..) => ("tools listed", 1),
        ("question", Some("deny"), _) => ("question of a server declined", 4),
        ("question", ..) => ("question of a server", 2),
        ("subscription", ..) => ("subscription", 1),
        (_, Some("deny"), _) => ("tool call refused", 6),
        (_, Some("ask"), _) => ("tool call awaits approval", 4),
        (_, Some(_), _) => ("tool call allowed", 3),
        _ => ("gateway event", 1),
    }
}
