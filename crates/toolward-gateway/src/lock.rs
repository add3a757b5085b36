//! Locks that survive a panic of their holder.
//!
//! A panic ends one request and must not end the gateway: the guarded data is changed in single
//! steps, so it is valid even if a holder panicked. Poisoning would turn one failed request into
//! the failure of all that follow.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// [`Mutex::lock`] that ignores poisoning.
pub trait LockUnpoisoned<T> {
    fn locked(&self) -> MutexGuard<'_, T>;
}

impl<T> LockUnpoisoned<T> for Mutex<T> {
    fn locked(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// [`RwLock::read`] and [`RwLock::write`] that ignore poisoning.
pub trait RwLockUnpoisoned<T> {
    fn read_locked(&self) -> RwLockReadGuard<'_, T>;
    fn write_locked(&self) -> RwLockWriteGuard<'_, T>;
}

impl<T> RwLockUnpoisoned<T> for RwLock<T> {
    fn read_locked(&self) -> RwLockReadGuard<'_, T> {
        self.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_locked(&self) -> RwLockWriteGuard<'_, T> {
        self.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_lock_whose_holder_panicked_can_be_used() {
        let (mutex, shared) = (Arc::new(Mutex::new(1)), Arc::new(RwLock::new(1)));
        let (held, held_too) = (mutex.clone(), shared.clone());
        let holder = std::thread::spawn(move || {
            let _guards = (held.lock(), held_too.write());
            panic!("while it holds both");
        });
        assert!(holder.join().is_err());
        assert!(mutex.lock().is_err() && shared.read().is_err());
        *mutex.locked() += 1;
        *shared.write_locked() += 1;
        assert_eq!((*mutex.locked(), *shared.read_locked()), (2, 2));
    }
}
