//! Tickets and grants as JSON, for the store.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::keys::Tag;
use super::ticket::{AskedBy, Binding, Grant, GrantScope, Subject, Ticket, TicketState};
use crate::audit::line::hex;

/// The version of the format. Records of another version are not read.
const VERSION: u64 = 2;

pub(super) fn of_ticket(ticket: &Ticket) -> Value {
    let rule = |rule: &AskedBy| {
        json!({
            "path": rule.path, "written": rule.written, "location": rule.location,
            "approvers": rule.approvers,
        })
    };
    let (state, detail) = match &ticket.state {
        TicketState::Pending => ("pending", None),
        TicketState::Approved { grant } => ("approved", Some(grant.clone())),
        TicketState::Denied { reason } => ("denied", reason.clone()),
    };
    json!({
        "version": VERSION, "id": ticket.id, "reference": ticket.reference,
        "subject": of_subject(&ticket.binding.subject), "tool_tag": hex(&ticket.binding.tool_tag),
        "subject_tag": hex(&ticket.binding.subject_tag), "call": hex(&ticket.binding.call),
        "arguments": of_arguments(&ticket.binding.arguments),
        "exposed": ticket.exposed, "holder_name": ticket.holder_name,
        "rules": ticket.rules.iter().map(rule).collect::<Vec<_>>(),
        "created": ticket.created, "expires": ticket.expires,
        "sealed": ticket.sealed.as_ref().map(|sealed| STANDARD.encode(sealed)),
        "bytes": ticket.bytes, "state": state, "detail": detail,
    })
}

pub(super) fn to_ticket(value: &Value) -> Option<Ticket> {
    let value = versioned(value)?;
    let rule = |value: &Value| {
        Some(AskedBy {
            path: text(value, "path")?,
            written: text(value, "written")?,
            location: text(value, "location")?,
            approvers: texts(value, "approvers")?,
        })
    };
    let detail = text(value, "detail");
    Some(Ticket {
        id: text(value, "id")?,
        reference: text(value, "reference")?,
        binding: Binding {
            subject: to_subject(&value["subject"])?,
            tool_tag: tag(value["tool_tag"].as_str()?)?,
            subject_tag: tag(value["subject_tag"].as_str()?)?,
            call: tag(value["call"].as_str()?)?,
            arguments: to_arguments(&value["arguments"])?,
        },
        exposed: text(value, "exposed")?,
        holder_name: text(value, "holder_name"),
        rules: value["rules"].as_array()?.iter().map(rule).collect::<Option<_>>()?,
        created: value["created"].as_u64()?,
        expires: value["expires"].as_u64()?,
        sealed: match &value["sealed"] {
            Value::String(sealed) => Some(STANDARD.decode(sealed).ok()?),
            _ => None,
        },
        bytes: usize::try_from(value["bytes"].as_u64()?).ok()?,
        state: match value["state"].as_str()? {
            "pending" => TicketState::Pending,
            "approved" => TicketState::Approved { grant: detail? },
            "denied" => TicketState::Denied { reason: detail },
            _ => return None,
        },
    })
}

pub(super) fn of_grant(grant: &Grant) -> Value {
    let (scope, values) = match &grant.scope {
        GrantScope::Call(call) => ("call", json!(hex(call))),
        GrantScope::Arguments(arguments) => ("arguments", of_arguments(arguments)),
        GrantScope::Tool => ("tool", Value::Null),
    };
    json!({
        "version": VERSION, "id": grant.id, "subject": of_subject(&grant.subject),
        "tool_tag": hex(&grant.tool_tag), "subject_tag": hex(&grant.subject_tag),
        "scope": scope, "values": values, "once": grant.once,
        "created": grant.created, "expires": grant.expires, "by": grant.by,
        "channel": grant.channel, "ticket": grant.ticket,
    })
}

pub(super) fn to_grant(value: &Value) -> Option<Grant> {
    let value = versioned(value)?;
    Some(Grant {
        id: text(value, "id")?,
        subject: to_subject(&value["subject"])?,
        tool_tag: tag(value["tool_tag"].as_str()?)?,
        subject_tag: tag(value["subject_tag"].as_str()?)?,
        scope: match value["scope"].as_str()? {
            "call" => GrantScope::Call(tag(value["values"].as_str()?)?),
            "arguments" => GrantScope::Arguments(to_arguments(&value["values"])?),
            "tool" => GrantScope::Tool,
            _ => return None,
        },
        once: value["once"].as_bool()?,
        created: value["created"].as_u64()?,
        expires: value["expires"].as_u64()?,
        by: text(value, "by")?,
        channel: text(value, "channel")?,
        ticket: text(value, "ticket")?,
    })
}

fn of_subject(subject: &Subject) -> Value {
    json!({
        "agent": subject.agent.as_deref(), "holder": subject.holder, "server": subject.server,
        "method": subject.method, "name": subject.name, "definition": subject.definition,
        "entries": subject.entries, "origin": subject.origin,
    })
}

fn to_subject(value: &Value) -> Option<Subject> {
    Some(Subject {
        agent: value["agent"].as_str().map(Into::into),
        holder: text(value, "holder"),
        server: text(value, "server")?,
        method: text(value, "method")?,
        name: text(value, "name")?,
        definition: text(value, "definition")?,
        entries: texts(value, "entries")?,
        origin: text(value, "origin")?,
    })
}

fn of_arguments(arguments: &[(String, Tag)]) -> Value {
    arguments.iter().map(|(name, tag)| json!([name, hex(tag)])).collect()
}

fn to_arguments(value: &Value) -> Option<Vec<(String, Tag)>> {
    let argument = |value: &Value| {
        let (name, hash) = (value.get(0)?.as_str()?, value.get(1)?.as_str()?);
        Some((name.to_string(), tag(hash)?))
    };
    value.as_array()?.iter().map(argument).collect()
}

fn versioned(value: &Value) -> Option<&Value> {
    (value["version"].as_u64() == Some(VERSION)).then_some(value)
}

fn text(value: &Value, key: &str) -> Option<String> {
    value[key].as_str().map(String::from)
}

fn texts(value: &Value, key: &str) -> Option<Vec<String>> {
    value[key].as_array()?.iter().map(|one| one.as_str().map(String::from)).collect()
}

fn tag(hex: &str) -> Option<Tag> {
    let bytes = hex.as_bytes();
    let mut tag = [0; 32];
    if bytes.len() != 64 {
        return None;
    }
    for (byte, pair) in tag.iter_mut().zip(bytes.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(tag)
}
