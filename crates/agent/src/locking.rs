//! Locks that a panic of their holder does not spoil.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock whose guarded value is whole after any panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
