//! The arguments of a call, for policy conditions.
//!
//! Policy reads the arguments from the bytes that are forwarded. There is no second parser that
//! could disagree with the scanner.

use std::borrow::Cow;

use serde_json::Value;

use crate::raw::Raw;
use crate::string::fold;

/// The arguments object of a call.
///
/// ```
/// use toolward_wire::{Arguments, Raw};
///
/// let raw = Raw::scan(br#"{"action": "navi\u0067ate", "Action": 2}"#, 1024).unwrap();
/// let arguments = Arguments::new(raw);
/// let seen: Vec<_> = arguments.members().map(|(name, value)| (name, value.as_str())).collect();
/// assert_eq!(seen[0], ("action".into(), Some("navigate".into())));
/// assert_eq!(seen[1], ("Action".into(), None));
/// assert_eq!(arguments.case_collision(), Some(("action".into(), "Action".into())));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Arguments<'b> {
    raw: Raw<'b>,
}

impl<'b> Arguments<'b> {
    pub fn new(raw: Raw<'b>) -> Arguments<'b> {
        Arguments { raw }
    }

    pub fn raw(self) -> Raw<'b> {
        self.raw
    }

    /// The top-level members in document order, with unescaped names.
    pub fn members(self) -> impl Iterator<Item = (Cow<'b, str>, Raw<'b>)> {
        self.raw.members().map(|member| (member.name(), member.value))
    }

    /// The value at a path of object keys.
    pub fn at<'p>(self, path: impl IntoIterator<Item = &'p str>) -> Option<Raw<'b>> {
        path.into_iter().try_fold(self.raw, |raw, key| raw.member(key))
    }

    /// Converts the whole object to a `serde_json` tree.
    pub fn to_json(self) -> Value {
        self.raw.to_json()
    }

    /// Finds two top-level keys that a case-insensitive parser confuses.
    pub fn case_collision(self) -> Option<(String, String)> {
        if self.is_collision_free() {
            return None;
        }
        let mut seen: Vec<(String, Cow<'b, str>)> =
            self.members().map(|(name, _)| (fold(&name), name)).collect();
        seen.sort_by(|a, b| a.0.cmp(&b.0));
        seen.windows(2).find_map(|pair| match pair {
            [(a, first), (b, second)] if a == b => Some((first.to_string(), second.to_string())),
            _ => None,
        })
    }

    /// Fast path of [`case_collision`](Self::case_collision): whether the keys are few, ASCII,
    /// without escape sequences, and all different.
    fn is_collision_free(self) -> bool {
        let mut seen: [&[u8]; MAX_LINEAR_KEYS] = [b""; MAX_LINEAR_KEYS];
        for (at, member) in self.raw.members().enumerate() {
            let Some((key, [place, ..])) =
                member.plain_name().filter(|key| key.is_ascii()).zip(seen.get_mut(at..))
            else {
                return false;
            };
            *place = key;
            let mut earlier = seen.iter().take(at);
            if earlier.any(|earlier| earlier.eq_ignore_ascii_case(key)) {
                return false;
            }
        }
        true
    }
}

/// Maximum number of keys that are compared pairwise.
const MAX_LINEAR_KEYS: usize = 16;
