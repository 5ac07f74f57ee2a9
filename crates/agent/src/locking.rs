//! Locks that stay usable after a panic of their holder.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a value that is consistent after any panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
