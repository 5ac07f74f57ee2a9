//! Numbers in memory that a process shares with its child: one of them writes, the other reads, neither waits.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::process::Stdio;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A row of numbers, all 0 at first. Its length cannot change.
#[derive(Debug)]
pub struct SharedNumbers {
    file: File,
    start: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the mapping holds atomic integers alone, which any thread may use, and lives until this value is dropped.
unsafe impl Send for SharedNumbers {}
// SAFETY: as above.
unsafe impl Sync for SharedNumbers {}

const BYTES: usize = std::mem::size_of::<AtomicU64>();

impl SharedNumbers {
    /// Creates `count` numbers, at least one.
    ///
    /// # Errors
    /// The system's.
    pub fn create(count: usize) -> io::Result<Self> {
        // SAFETY: the name ends with NUL; a non-negative result is a descriptor that no other object owns.
        let file = unsafe {
            let fd = libc::memfd_create(c"leadline-numbers".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(fd)
        };
        file.set_len((count * BYTES) as u64)?;
        // SAFETY: F_ADD_SEALS takes a plain number.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, FIXED_LENGTH) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Self::map(file, count)
    }

    /// Opens the numbers that the parent gave to this process as its stdin.
    ///
    /// # Errors
    /// `InvalidInput` if stdin is something else, otherwise the system's.
    pub fn from_stdin() -> io::Result<Self> {
        let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        // SAFETY: F_GET_SEALS takes no argument; files that cannot be sealed refuse it.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        let count = usize::try_from(file.metadata()?.len()).unwrap_or(0) / BYTES;
        // Reading behind the end of a file that became shorter would kill this process.
        if seals < 0 || seals & FIXED_LENGTH != FIXED_LENGTH || count == 0 {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        Self::map(file, count)
    }

    /// Returns the numbers as the stdin of a child.
    ///
    /// # Errors
    /// The system's.
    pub fn as_stdin(&self) -> io::Result<Stdio> {
        self.file.try_clone().map(Stdio::from)
    }

    /// Returns the numbers.
    pub fn numbers(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has room for `count` numbers, is aligned to a page, lives as long as `self`, and its file
        // keeps its length.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }

    fn map(file: File, count: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping of an open file.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), count * BYTES, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        match NonNull::new(address.cast::<AtomicU64>()) {
            Some(start) if address != libc::MAP_FAILED => Ok(Self { file, start, count }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for SharedNumbers {
    fn drop(&mut self) {
        // SAFETY: the address and the length of our own mapping, to which no reference is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.count * BYTES) };
    }
}

const FIXED_LENGTH: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};
    use std::process::Command;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn what_a_child_writes_is_read_here() {
        let shared = SharedNumbers::create(3).unwrap();
        assert!(shared.numbers().iter().all(|number| number.load(Ordering::Relaxed) == 0));
        let mut child = Command::new("sh");
        child.args(["-c", "printf '\\001\\002' 1<>/proc/self/fd/0"]);
        assert!(child.stdin(shared.as_stdin().unwrap()).status().unwrap().success());
        let found: Vec<u64> = shared.numbers().iter().map(|number| number.load(Ordering::Relaxed)).collect();
        assert_eq!(found, [u64::from_le_bytes([1, 2, 0, 0, 0, 0, 0, 0]), 0, 0]);
    }

    #[test]
    fn length_cannot_change() {
        let mut shared = SharedNumbers::create(1).unwrap();
        assert!(shared.file.set_len(0).is_err() && shared.file.set_len(16).is_err());
        shared.file.seek(io::SeekFrom::End(0)).unwrap();
        assert!(shared.file.write_all(&[1]).is_err());
    }

    #[test]
    fn another_stdin_is_refused() {
        assert_eq!(SharedNumbers::from_stdin().unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
