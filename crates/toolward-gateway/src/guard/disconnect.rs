//! A client that disconnects while limits or hooks are asked about its call. Nothing is forwarded, and the audit log
//! has one record of it.

/// Calls a function if it is dropped before the guards have answered.
#[must_use]
pub(crate) struct OnDisconnect<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDisconnect<F> {
    pub(crate) fn new(record: F) -> OnDisconnect<F> {
        OnDisconnect(Some(record))
    }

    /// The guards have answered: their answer is recorded elsewhere.
    pub(crate) fn answered(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for OnDisconnect<F> {
    fn drop(&mut self) {
        if let Some(record) = self.0.take() {
            record();
        }
    }
}
