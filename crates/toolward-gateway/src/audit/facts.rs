//! Facts of an audit record, serialized as members of a JSON object.

use toolward_wire::string;

/// Members of an audit record, in the order in which they were added.
///
/// The log writes the members that every record has (time, id, kind) before these.
#[derive(Debug, Default)]
pub struct Facts {
    members: Vec<u8>,
}

impl Facts {
    /// Names are constants of this crate and need no escaping.
    fn name(&mut self, name: &str) {
        self.members.extend_from_slice(b",\"");
        self.members.extend_from_slice(name.as_bytes());
        self.members.extend_from_slice(b"\":");
    }

    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.name(name);
        string::write(text, &mut self.members);
    }

    /// Text that needs no escaping.
    pub(crate) fn raw_text(&mut self, name: &str, text: &[u8]) {
        self.name(name);
        self.members.push(b'"');
        self.members.extend_from_slice(text);
        self.members.push(b'"');
    }

    pub(crate) fn maybe(&mut self, name: &str, text: Option<&str>) {
        match text {
            Some(text) => self.text(name, text),
            None => self.json(name, "null"),
        }
    }

    pub(crate) fn number(&mut self, name: &str, number: u64) {
        self.name(name);
        write_number(number, &mut self.members);
    }

    pub(crate) fn maybe_number(&mut self, name: &str, number: Option<i64>) {
        match number {
            Some(number) => self.json(name, &number.to_string()),
            None => self.json(name, "null"),
        }
    }

    pub(crate) fn with_room(bytes: usize) -> Facts {
        Facts { members: Vec::with_capacity(bytes) }
    }

    /// Appends serialized members, each with its leading comma.
    pub(crate) fn extend(&mut self, members: &[u8]) {
        self.members.extend_from_slice(members);
    }

    /// A value that is already JSON.
    pub(crate) fn json(&mut self, name: &str, value: &str) {
        self.name(name);
        self.members.extend_from_slice(value.as_bytes());
    }

    pub(crate) fn members(&self) -> &[u8] {
        &self.members
    }
}

/// Writes a number in decimal digits.
pub(crate) fn write_number(number: u64, out: &mut Vec<u8>) {
    let (mut text, mut at, mut rest) = ([0; 20], 20, number);
    loop {
        at -= 1;
        text[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            return out.extend_from_slice(&text[at..]);
        }
    }
}
