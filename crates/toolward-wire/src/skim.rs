//! The id of a request that is too large to be held in memory.

use crate::id::Id;
use crate::raw::Raw;

/// Longer keys and ids are not kept.
const MAX_KEPT_BYTES: usize = 256;

/// Reads a request piece by piece and keeps nothing but its id.
///
/// It finds `id` among the members of the outermost object, at any position. In doubtful cases,
/// such as two ids or a key with escape sequences, it returns no id: with a wrong one, the error
/// would be sent as the response to another request.
///
/// ```
/// use toolward_wire::skim::Skim;
///
/// let mut skim = Skim::default();
/// skim.push(br#"{"method":"tools/call","params":{"id":1,"x":"}"#);
/// skim.push(br#"{\""},"jsonrpc":"2.0","id":"c-7"}"#);
/// assert_eq!(skim.request_id().unwrap().raw(), br#""c-7""#);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skim {
    state: State,
    /// Objects and arrays that are open inside the value of a member.
    depth: usize,
    /// The key or value that is being read.
    text: Vec<u8>,
    /// The current value is the id.
    is_id: bool,
    id: Option<Vec<u8>>,
    has_method: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// Before the object.
    #[default]
    Start,
    /// Before a key, or the end of the object.
    Key,
    InKey,
    Colon,
    /// Before a value.
    Value,
    /// In a string that is the whole value of a member; `true` after a backslash.
    Text(bool),
    /// In a number or literal.
    Word,
    /// In an object or array.
    Nested,
    /// In a string inside an object or array; `true` after a backslash.
    NestedText(bool),
    /// After a value.
    Comma,
    End,
    Unclear,
}

impl Skim {
    pub fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.state = self.step(*byte);
        }
    }

    /// The id, if everything was read and it is a request with a single id.
    pub fn request_id(&self) -> Option<Id> {
        let id = self.id.as_ref().filter(|_| self.state == State::End && self.has_method)?;
        Id::of(Raw::scan(id, id.len()).ok()?)
    }

    fn step(&mut self, byte: u8) -> State {
        let is_space = matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        match self.state {
            State::Start | State::Key | State::Colon | State::Value | State::Comma | State::End
                if is_space =>
            {
                self.state
            }
            State::Start if byte == b'{' => State::Key,
            State::Key => match byte {
                b'"' => {
                    self.text.clear();
                    State::InKey
                }
                b'}' => State::End,
                _ => State::Unclear,
            },
            State::InKey => match byte {
                b'"' => self.key(),
                // A key with escape sequences may be `id` as well.
                b'\\' => State::Unclear,
                _ => self.keep(byte, State::InKey),
            },
            State::Colon if byte == b':' => State::Value,
            State::Value => {
                self.text.clear();
                match byte {
                    b'{' | b'[' => {
                        self.depth = 1;
                        if self.is_id { State::Unclear } else { State::Nested }
                    }
                    b'"' => self.keep(byte, State::Text(false)),
                    b',' | b'}' | b']' | b':' => State::Unclear,
                    _ => self.keep(byte, State::Word),
                }
            }
            State::Text(escaped) => {
                let next = match (escaped, byte) {
                    (false, b'"') => State::Comma,
                    (false, b'\\') => State::Text(true),
                    _ => State::Text(false),
                };
                let next = self.keep(byte, next);
                if next == State::Comma { self.value() } else { next }
            }
            State::Word => match byte {
                b',' | b'}' => {
                    self.state = self.value();
                    self.step(byte)
                }
                _ if is_space => self.value(),
                _ => self.keep(byte, State::Word),
            },
            State::Nested => {
                match byte {
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => self.depth -= 1,
                    b'"' => return State::NestedText(false),
                    _ => {}
                }
                if self.depth == 0 { self.value() } else { State::Nested }
            }
            State::NestedText(escaped) => match (escaped, byte) {
                (false, b'"') => State::Nested,
                (false, b'\\') => State::NestedText(true),
                _ => State::NestedText(false),
            },
            State::Comma => match byte {
                b',' => State::Key,
                b'}' => State::End,
                _ => State::Unclear,
            },
            State::Start | State::Colon | State::End | State::Unclear => State::Unclear,
        }
    }

    /// Keeps a byte of a key, or of the id.
    fn keep(&mut self, byte: u8, next: State) -> State {
        let is_kept = self.is_id || matches!(self.state, State::InKey);
        match is_kept && self.text.len() >= MAX_KEPT_BYTES {
            // A key of this length is not `id`, and an id of this length is not usable.
            true if self.is_id => State::Unclear,
            true => next,
            false => {
                if is_kept {
                    self.text.push(byte);
                }
                next
            }
        }
    }

    /// Handles the end of a key.
    fn key(&mut self) -> State {
        self.has_method |= self.text == b"method";
        self.is_id = self.text == b"id";
        if self.is_id && self.id.is_some() { State::Unclear } else { State::Colon }
    }

    /// Handles the end of a value.
    fn value(&mut self) -> State {
        if std::mem::take(&mut self.is_id) {
            self.id = Some(std::mem::take(&mut self.text));
        }
        State::Comma
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_of(body: &str) -> Option<String> {
        // In pieces of every size, which must not change the result.
        let all: Vec<Option<String>> = (1..=body.len())
            .map(|size| {
                let mut skim = Skim::default();
                body.as_bytes().chunks(size).for_each(|piece| skim.push(piece));
                skim.request_id().map(|id| String::from_utf8_lossy(id.raw()).into_owned())
            })
            .collect();
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{body}");
        all.into_iter().next().flatten()
    }

    #[test]
    fn the_id_is_found_wherever_it_is() {
        for (body, id) in [
            (r#"{"id":7,"method":"m"}"#, "7"),
            (r#"{"id": 7 ,"method":"m"}"#, "7"),
            (r#" {"method":"m","params":{"id":1,"a":[{"id":2}]},"jsonrpc":"2.0","id":-3}"#, "-3"),
            (r#"{"method":"m","params":{"a":"\"},\"id\":9"},"id":"x\"y"}"#, r#""x\"y""#),
            (r#"{"x":null,"y":true,"z":[],"method":"m","id":"a b"}"#, r#""a b""#),
        ] {
            assert_eq!(id_of(body).as_deref(), Some(id), "{body}");
        }
    }

    #[test]
    fn an_ambiguous_message_has_no_id() {
        for body in [
            "",
            "[]",
            r#"{"id":1}"#,
            r#"{"method":"m"}"#,
            r#"{"id":1,"id":2,"method":"m"}"#,
            r#"{"id":1,"\u0069d":2,"method":"m"}"#,
            r#"{"id":{},"method":"m"}"#,
            r#"{"id":1.5,"method":"m"}"#,
            r#"{"id":null,"method":"m"}"#,
            r#"{"id":1,"method":"m""#,
            r#"{"id":1,"method":"m"}}"#,
            r#"{"id" 1,"method":"m"}"#,
            &format!(r#"{{"id":"{}","method":"m"}}"#, "x".repeat(300)),
        ] {
            assert_eq!(id_of(body), None, "{body}");
        }
    }
}
