//! Memory with a fixed address that the kernel points to while its owner moves. A `Box` that moves claims unique
//! access to its content, which contradicts pointers into it that are stored elsewhere; here the owner is a pointer
//! too, and every access derives from it.
#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A slice that does not move until it is dropped.
pub(crate) struct Pinned<T>(NonNull<[T]>);

// SAFETY: it owns its items as a box does, and they are reached only through it.
unsafe impl<T: Send> Send for Pinned<T> {}

impl<T> Pinned<T> {
    pub(crate) fn new(items: Box<[T]>) -> Self {
        Self(NonNull::from(Box::leak(items)))
    }

    /// Returns the location of an item, or the end. Valid until this is dropped; code that uses it keeps no reference
    /// into the slice meanwhile.
    pub(crate) fn place(&self, index: usize) -> *mut T {
        assert!(index <= self.0.len(), "within the slice");
        // SAFETY: at most one past the slice's last item.
        unsafe { self.0.cast::<T>().as_ptr().add(index) }
    }
}

impl<T> Deref for Pinned<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: made from a box, which only `drop` returns; changes go through `&mut self`, or the kernel makes
        // them during a call that borrows the owner mutably.
        unsafe { self.0.as_ref() }
    }
}

impl<T> DerefMut for Pinned<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { self.0.as_mut() }
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        // SAFETY: made by leaking a box, given back once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::Pinned;

    #[test]
    fn pinned_addresses_survive_a_move() {
        let mut words = Pinned::new(vec![1u64, 2, 3].into_boxed_slice());
        let last = words.place(2);
        words[0] = 7;
        let moved = std::thread::spawn(move || (words.len(), words)).join().unwrap();
        // SAFETY: within the slice, which `moved` owns, and no reference into it is alive.
        unsafe { last.write(9) };
        assert_eq!((moved.0, &moved.1[..]), (3, [7, 2, 9].as_slice()));
    }
}
