//! Records that a client disconnected while limits or hooks were checking its call. Nothing is forwarded,
//! and the audit log gets one record.

/// Calls a function if it is dropped before the guards have finished.
#[must_use]
pub(crate) struct OnDisconnect<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDisconnect<F> {
    pub(crate) fn new(record: F) -> OnDisconnect<F> {
        OnDisconnect(Some(record))
    }

    /// The guards have finished, and their result is recorded elsewhere.
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
