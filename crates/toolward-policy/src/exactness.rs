//! Which numbers of a call a condition reads, and whether it can decide on them: see [`crate::number`].

use crate::argument_path::ArgumentReads;
use crate::call::Arguments;
use crate::number::Precision;
use crate::text::cut;

/// At most this many characters of a number are repeated in a message.
const LONGEST_NUMBER: usize = 40;

/// The arguments that an expression reads, by the keys that are written in it.
#[derive(Debug, Default)]
pub(crate) struct NumbersRead {
    /// Paths of keys; each stands for everything below it, and the empty one for all arguments.
    paths: Vec<Box<[Box<str>]>>,
    /// The expression has doubles of its own, with which integers are compared as doubles.
    has_doubles: bool,
}

impl NumbersRead {
    pub(crate) fn of(reads: &ArgumentReads) -> NumbersRead {
        let paths = reads.paths.iter().map(|path| path.keys.clone()).collect();
        NumbersRead { paths, has_doubles: reads.has_doubles }
    }

    /// Fails on a number that the server may read more precisely than the condition evaluates it.
    pub(crate) fn check(&self, arguments: &dyn Arguments) -> Result<(), String> {
        let (mut inexact, mut wide, mut doubles) = (None, None, self.has_doubles);
        for path in &self.paths {
            arguments.numbers(path, &mut |text| match Precision::of(text) {
                Precision::Integer => {}
                Precision::Double => doubles = true,
                Precision::WideInteger => drop(wide.get_or_insert_with(|| shown(text))),
                Precision::Inexact => drop(inexact.get_or_insert_with(|| shown(text))),
            });
        }
        match inexact.or(wide.filter(|_| doubles)) {
            Some(number) => Err(format!("reads {number}, which cannot be compared exactly")),
            None => Ok(()),
        }
    }
}

fn shown(number: &str) -> String {
    cut(number, LONGEST_NUMBER).into_owned()
}
