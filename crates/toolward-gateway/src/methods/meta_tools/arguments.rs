//! Arguments of the meta tools, checked strictly against their schemas.

use std::borrow::Cow;

use toolward_wire::{Arguments, Raw};

/// An error in the arguments, for the caller.
pub(super) type Wrong = String;

/// The arguments of a meta tool's call.
#[derive(Clone, Copy)]
pub(super) struct MetaArguments<'m>(Option<Arguments<'m>>);

impl<'m> MetaArguments<'m> {
    /// Accepts arguments with these names and no others.
    pub(super) fn only(
        arguments: Option<Arguments<'m>>,
        names: &[&str],
    ) -> Result<MetaArguments<'m>, Wrong> {
        let mut members = arguments.into_iter().flat_map(Arguments::members);
        match members.find(|(name, _)| !names.contains(&&**name)) {
            None => Ok(MetaArguments(arguments)),
            Some((unknown, _)) if names.is_empty() => {
                Err(format!("`{unknown}` is not an argument; this tool has none"))
            }
            Some((unknown, _)) => {
                let names = names.join("`, `");
                Err(format!("`{unknown}` is not an argument; the arguments are `{names}`"))
            }
        }
    }

    /// A value that is present and not null.
    fn value(self, name: &str) -> Option<Raw<'m>> {
        self.0?.at([name]).filter(|raw| raw.bytes() != b"null")
    }

    fn read<T>(
        self,
        name: &str,
        kind: &str,
        read: impl Fn(Raw<'m>) -> Option<T>,
    ) -> Result<Option<T>, Wrong> {
        let value = self.value(name);
        value.map(|raw| read(raw).ok_or_else(|| format!("`{name}` must be {kind}"))).transpose()
    }

    pub(super) fn text(self, name: &str) -> Result<Cow<'m, str>, Wrong> {
        let text = self.optional_text(name)?;
        text.ok_or_else(|| format!("`{name}` is missing"))
    }

    pub(super) fn optional_text(self, name: &str) -> Result<Option<Cow<'m, str>>, Wrong> {
        self.read(name, "a string", Raw::as_str)
    }

    pub(super) fn texts(self, name: &str) -> Result<Option<Vec<Cow<'m, str>>>, Wrong> {
        self.read(name, "a list of strings", |raw| {
            (raw.shape() == toolward_wire::Shape::Array)
                .then(|| raw.elements().map(|(one, _)| one.as_str()).collect())
                .flatten()
        })
    }

    pub(super) fn number(self, name: &str, least: u64) -> Result<Option<u64>, Wrong> {
        self.read(name, &format!("a whole number of at least {least}"), |raw| {
            u64::try_from(raw.as_i64()?).ok().filter(|number| *number >= least)
        })
    }

    pub(super) fn object(self, name: &str) -> Result<Option<Raw<'m>>, Wrong> {
        self.read(name, "an object", |raw| raw.is_object().then_some(raw))
    }
}
