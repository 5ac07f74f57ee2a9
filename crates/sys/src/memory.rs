//! Returns freed memory of the allocator to the system. Owns no memory.
#![allow(unsafe_code)]

/// Returns freed memory to the system; false if the allocator has no such call. Takes milliseconds per gigabyte.
pub fn trim_heap() -> bool {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called at any time from any thread; its argument is how much to leave at the top.
    unsafe {
        libc::malloc_trim(0);
    }
    cfg!(target_env = "gnu")
}
