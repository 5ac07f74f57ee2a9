//! The size of pages, and freed memory of the allocator. Owns no memory.
#![allow(unsafe_code)]

/// Returns the size of a page of memory, bytes: 4096 on x86_64; 4096, 16384 or 65536 on aarch64, as its kernel was built.
pub fn page_bytes() -> usize {
    // SAFETY: asks for a number; this one is always known.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096)
}

/// Returns freed memory to the system; false if the allocator has no such call. Takes milliseconds per gigabyte.
pub fn trim_heap() -> bool {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called at any time from any thread; its argument is how much to leave at the top.
    unsafe {
        libc::malloc_trim(0);
    }
    cfg!(target_env = "gnu")
}
