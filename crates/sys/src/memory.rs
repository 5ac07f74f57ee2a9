//! What the allocator keeps for itself of what was freed. Owns no memory.
#![allow(unsafe_code)]

/// Give freed memory back to the system; false where the allocator has no such call. Takes milliseconds per gigabyte.
pub fn trim_heap() -> bool {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called at any time from any thread; its argument is how much to leave at the top.
    unsafe {
        libc::malloc_trim(0);
    }
    cfg!(target_env = "gnu")
}
