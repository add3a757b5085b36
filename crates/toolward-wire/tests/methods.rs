//! The method table and the status table.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use toolward_wire::jsonrpc_error::{StatusCase, status};
use toolward_wire::method::{MethodKind, PolicySubject, lookup, rows, server_request};
use toolward_wire::{Era, Revision, Sender, code};

#[test]
fn the_table_is_closed_and_has_one_row_per_direction() {
    for row in rows() {
        for (sender, era) in [
            (Sender::Client, Era::Legacy),
            (Sender::Client, Era::Modern),
            (Sender::Server, Era::Legacy),
            (Sender::Server, Era::Modern),
        ] {
            let fits = rows().iter().filter(|other| {
                other.name == row.name && other.direction.admits(sender) && other.is_in(era)
            });
            assert!(fits.count() <= 1, "{}", row.name);
        }
        assert_eq!(row.name.starts_with("notifications/"), row.kind == MethodKind::Notification);
        assert!(row.revisions.0 <= row.revisions.1);
    }
    assert!(lookup("tools/call ", Sender::Client, Era::Legacy).is_none());
    assert!(lookup("", Sender::Client, Era::Legacy).is_none());
}

#[test]
fn eras_have_their_own_methods() {
    let has = |name, sender, era| lookup(name, sender, era).is_some();
    for legacy in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "tasks/list"] {
        assert!(
            has(legacy, Sender::Client, Era::Legacy) && !has(legacy, Sender::Client, Era::Modern)
        );
    }
    for modern in ["server/discover", "subscriptions/listen", "tasks/update"] {
        assert!(
            !has(modern, Sender::Client, Era::Legacy) && has(modern, Sender::Client, Era::Modern)
        );
    }
    for ask in ["sampling/createMessage", "elicitation/create", "roots/list"] {
        assert!(has(ask, Sender::Server, Era::Legacy) && !has(ask, Sender::Server, Era::Modern));
        assert!(!has(ask, Sender::Client, Era::Legacy));
        assert_eq!(server_request(ask).unwrap().subject, PolicySubject::ClientRequest);
    }
    assert!(server_request("tools/call").is_none());
    assert!(!has("notifications/progress", Sender::Client, Era::Modern));
    let cacheable: Vec<&str> =
        rows().iter().filter(|row| row.cacheable).map(|row| row.name).collect();
    assert_eq!(cacheable.len(), 6, "{cacheable:?}");
}

#[test]
fn revisions_can_be_parsed_and_have_an_era() {
    for revision in Revision::ALL {
        assert_eq!(Revision::parse(revision.as_str()), Some(revision));
    }
    assert_eq!(Revision::parse("2026-07-29"), None);
    assert_eq!(Revision::newest(Era::Modern).era(), Era::Modern);
    assert_eq!(Revision::newest(Era::Legacy).era(), Era::Legacy);
}

#[test]
fn statuses_match_the_table() {
    let of = |case, era| status(case, era).map(|status| (status.http, status.code));
    use Era::{Legacy, Modern};
    assert_eq!(of(StatusCase::MalformedJson, Modern), Some((400, Some(code::PARSE_ERROR))));
    assert_eq!(of(StatusCase::BadParams, Modern), Some((400, Some(code::INVALID_PARAMS))));
    assert_eq!(of(StatusCase::BadParams, Legacy), Some((200, Some(code::INVALID_PARAMS))));
    assert_eq!(of(StatusCase::UnknownMethod, Modern), Some((404, Some(code::METHOD_NOT_FOUND))));
    assert_eq!(of(StatusCase::UnknownMethod, Legacy), Some((200, Some(code::METHOD_NOT_FOUND))));
    assert_eq!(of(StatusCase::HeaderMismatch, Modern), Some((400, Some(-32020))));
    assert_eq!(of(StatusCase::MissingCapability, Modern), Some((400, Some(-32021))));
    assert_eq!(of(StatusCase::UnsupportedVersion, Modern), Some((400, Some(-32022))));
    assert_eq!(of(StatusCase::UnknownSession, Legacy).map(|(http, _)| http), Some(404));
    assert_eq!(of(StatusCase::NoSession, Legacy).map(|(http, _)| http), Some(400));
    for case in [StatusCase::NoSession, StatusCase::UnknownSession] {
        assert_eq!(of(case, Modern), None);
    }
    for case in [StatusCase::MissingMeta, StatusCase::MissingCapability, StatusCase::HeaderMismatch]
    {
        assert_eq!(of(case, Legacy), None);
    }
    for era in [Legacy, Modern] {
        assert_eq!(of(StatusCase::Accepted, era), Some((202, None)));
        assert_eq!(of(StatusCase::NoStream, era), Some((405, None)));
        assert_eq!(of(StatusCase::Refusal, era), Some((200, None)));
    }
}
