//! Checks that a condition reads only numbers it can compare exactly: see [`crate::number`].

use crate::argument_path::ArgumentReads;
use crate::call::Arguments;
use crate::number::Precision;
use crate::text::cut;

/// At most this many characters of a number are repeated in a message.
const LONGEST_NUMBER: usize = 40;

/// The arguments that an expression reads, by the keys written in it.
#[derive(Debug, Default)]
pub(crate) struct NumbersRead {
    /// Paths of keys. Each covers everything below it; the empty path covers all arguments.
    paths: Vec<Box<[Box<str>]>>,
    /// The expression contains doubles, so integers are compared as doubles.
    has_doubles: bool,
}

impl NumbersRead {
    pub(crate) fn of(reads: &ArgumentReads) -> NumbersRead {
        let paths = reads.paths.iter().map(|path| path.keys.clone()).collect();
        NumbersRead { paths, has_doubles: reads.has_doubles }
    }

    /// Fails on a number that the server may read with more precision than the condition does.
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
