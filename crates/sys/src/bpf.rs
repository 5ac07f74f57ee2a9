//! BPF programs at the driver of an interface (XDP): maps that a program and this process share, programs given as
//! instructions, their runs on pages of the kernel, and their attachment (bpf(2)). No program is written here.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const MAP_CREATE: libc::c_long = 0;
const PROG_LOAD: libc::c_long = 5;
const PROG_TEST_RUN: libc::c_long = 10;
const LINK_CREATE: libc::c_long = 28;

const MAP_TYPE_ARRAY: u32 = 2;
/// BPF_F_MMAPABLE.
const MAP_IS_MAPPED: u32 = 1 << 10;
const PROG_TYPE_XDP: u32 = 6;
/// BPF_XDP, the place of a link.
const ATTACH_XDP: u32 = 37;
/// BPF_F_TEST_XDP_LIVE_FRAMES.
const LIVE_FRAMES: u32 = 1 << 1;
const XDP_FLAGS_SKB: u32 = 1 << 1;
const XDP_FLAGS_DRIVER: u32 = 1 << 2;
/// Room for the reasons of the kernel's verifier, bytes.
const LOG_BYTES: usize = 1 << 20;
/// Any licence that lets a program call what it needs.
const LICENCE: &[u8] = b"Dual MIT/GPL\0";

/// As much of `union bpf_attr` as is used, as 64-bit words: the kernel wants zeros behind what a command knows.
type Attributes = [u64; 16];

/// Two halves of a word in memory order.
const fn pair(low: u32, high: u32) -> u64 {
    if cfg!(target_endian = "little") {
        low as u64 | (high as u64) << 32
    } else {
        high as u64 | (low as u64) << 32
    }
}

fn bpf(command: libc::c_long, attributes: &mut Attributes) -> io::Result<RawFd> {
    // SAFETY: the kernel reads and writes at most the given size of a live array; what the pointers in it point to is the
    // duty of the callers below.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), size_of::<Attributes>() as u32) };
    RawFd::try_from(result).ok().filter(|result| *result >= 0).ok_or_else(io::Error::last_os_error)
}

fn descriptor(command: libc::c_long, attributes: &mut Attributes) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the command returned a descriptor that no other object owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Memory of one value that programs and this process share. Numbers in it have this machine's byte order.
#[derive(Debug)]
pub struct SharedMap {
    map: OwnedFd,
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value and is only accessed through atomics, or by exclusive borrows.
unsafe impl Send for SharedMap {}
// SAFETY: as above.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// Creates memory of zeros.
    ///
    /// # Errors
    /// The system's: `EPERM` without the right to use BPF, `ENOMEM`, `E2BIG`.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let size = u32::try_from(bytes.max(8).next_multiple_of(8)).map_err(too_long)?;
        let mut attributes = Attributes::default();
        attributes[0] = pair(MAP_TYPE_ARRAY, 4);
        attributes[1] = pair(size, 1);
        attributes[2] = pair(MAP_IS_MAPPED, 0);
        let map = descriptor(MAP_CREATE, &mut attributes)?;
        let bytes = size as usize;
        // SAFETY: a new shared mapping of a descriptor, whose length the kernel rounds up to whole pages.
        let memory = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, map.as_raw_fd(), 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { map, memory, bytes })
    }

    /// The number by which instructions name it.
    pub fn number(&self) -> i32 {
        self.map.as_raw_fd()
    }

    /// Reads eight bytes at a multiple of eight.
    ///
    /// # Panics
    /// If they are not within the memory.
    pub fn read(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }

    /// Writes eight bytes at a multiple of eight.
    ///
    /// # Panics
    /// If they are not within the memory.
    pub fn write(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Relaxed);
    }

    /// Reads four bytes at a multiple of four.
    ///
    /// # Panics
    /// If they are not within the memory.
    pub fn read_half(&self, at: usize) -> u32 {
        assert!(at % 4 == 0 && at + 4 <= self.bytes, "a number at {at} of {} bytes", self.bytes);
        // SAFETY: within the mapping and aligned, as just checked; programs change it only by aligned stores.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(at).cast()) }.load(Ordering::Relaxed)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at % 8 == 0 && at + 8 <= self.bytes, "a number at {at} of {} bytes", self.bytes);
        // SAFETY: within the mapping and aligned, as just checked; programs change it only by aligned stores.
        unsafe { AtomicU64::from_ptr(self.memory.as_ptr().add(at).cast()) }
    }

    /// The memory as bytes; no program may run on it meanwhile.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the whole mapping, borrowed exclusively. Programs that have it run only by calls of this process, or at
        // an interface after they were attached, and callers prepare it before either.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.bytes) }
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; nothing that borrows from it can outlive `self`.
        unsafe { libc::munmap(self.memory.as_ptr().cast::<c_void>(), self.bytes) };
    }
}

/// Why the kernel did not take a program.
#[derive(Debug)]
pub struct Refusal {
    /// The system's error: `EPERM` without the right to use BPF.
    pub error: io::Error,
    /// The last lines of its verifier.
    pub log: String,
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        refusal.error
    }
}

/// A program that the kernel has checked and translated.
#[derive(Debug)]
pub struct Program {
    program: OwnedFd,
}

impl Program {
    /// Gives an XDP program to the kernel.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn load(instructions: &[u64]) -> Result<Self, Refusal> {
        let load = |log: Option<&mut [u8]>| {
            let mut attributes = Attributes::default();
            attributes[0] = pair(PROG_TYPE_XDP, instructions.len() as u32);
            attributes[1] = instructions.as_ptr() as u64;
            attributes[2] = LICENCE.as_ptr() as u64;
            if let Some(log) = log {
                attributes[3] = pair(1, log.len() as u32);
                attributes[4] = log.as_mut_ptr() as u64;
            }
            // kern_version and prog_flags are word 5; the name is in words 6 and 7; interface and attach type in word 8.
            attributes[8] = pair(0, ATTACH_XDP);
            descriptor(PROG_LOAD, &mut attributes)
        };
        let error = match load(None) {
            Ok(program) => return Ok(Self { program }),
            Err(error) => error,
        };
        let mut log = vec![0; LOG_BYTES];
        let _ = load(Some(&mut log));
        let text = String::from_utf8_lossy(log.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        Err(Refusal { error, log: lines[lines.len().saturating_sub(12)..].join("; ") })
    }

    /// Runs the program `repeat` times on pages of the kernel with this frame in them, each of which goes where the program
    /// sends it. A signal ends it early; only the program knows how often it ran.
    ///
    /// # Errors
    /// The system's: `EINTR` after a signal.
    pub fn run_live(&self, frame: &[u8], repeat: u32, batch: u32) -> io::Result<()> {
        let mut attributes = Attributes::default();
        attributes[0] = pair(self.program.as_raw_fd() as u32, 0);
        attributes[1] = pair(frame.len() as u32, 0);
        attributes[2] = frame.as_ptr() as u64;
        attributes[4] = pair(repeat, 0);
        attributes[8] = pair(LIVE_FRAMES, 0);
        attributes[9] = pair(batch, 0);
        bpf(PROG_TEST_RUN, &mut attributes).map(|_| ())
    }

    /// Runs the program once on a copy of this frame that goes nowhere; returns its verdict and the frame behind it.
    ///
    /// # Errors
    /// The system's.
    pub fn try_on(&self, frame: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        let mut output = vec![0u8; frame.len() + 256];
        let mut attributes = Attributes::default();
        attributes[0] = pair(self.program.as_raw_fd() as u32, 0);
        attributes[1] = pair(frame.len() as u32, output.len() as u32);
        attributes[2] = frame.as_ptr() as u64;
        attributes[3] = output.as_mut_ptr() as u64;
        attributes[4] = pair(1, 0);
        bpf(PROG_TEST_RUN, &mut attributes)?;
        let high = |word: u64| if cfg!(target_endian = "little") { (word >> 32) as u32 } else { word as u32 };
        output.truncate(high(attributes[1]) as usize);
        Ok((high(attributes[0]), output))
    }
}

/// How a program is attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// In its driver.
    Driver,
    /// In the kernel, behind the driver, with the costs of a socket buffer.
    Generic,
}

/// A program at an interface, which is gone when this value or its process is.
#[derive(Debug)]
pub struct XdpLink {
    _link: OwnedFd,
}

impl XdpLink {
    /// Attaches a program to an interface of this thread's network namespace.
    ///
    /// # Errors
    /// The system's: `EBUSY` if there is one, `EOPNOTSUPP` if the driver has no place for one, `ERANGE` or `EINVAL` if its
    /// MTU is too large.
    pub fn attach(program: &Program, interface: u32, attachment: Attachment) -> io::Result<Self> {
        let flags = match attachment {
            Attachment::Driver => XDP_FLAGS_DRIVER,
            Attachment::Generic => XDP_FLAGS_SKB,
        };
        let mut attributes = Attributes::default();
        attributes[0] = pair(program.program.as_raw_fd() as u32, interface);
        attributes[1] = pair(ATTACH_XDP, flags);
        descriptor(LINK_CREATE, &mut attributes).map(|link| Self { _link: link })
    }
}

/// A program that the kernel's dispatcher keeps, by an interface that no frame ever reaches. Entering and leaving the
/// dispatcher takes 20 to 40 ms, which each run on live frames would wait for otherwise.
#[derive(Debug)]
pub struct KeptProgram {
    _link: XdpLink,
    _namespace: std::fs::File,
}

impl KeptProgram {
    /// Attaches the program to the loopback of a network namespace of its own, which has no other interface and is down.
    ///
    /// # Errors
    /// The system's.
    pub fn keep(program: &Program) -> io::Result<Self> {
        let keep = || {
            // SAFETY: affects this thread alone, which does nothing else and ends.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            let namespace = std::fs::File::open("/proc/thread-self/ns/net")?;
            const LOOPBACK: u32 = 1;
            let link = XdpLink::attach(program, LOOPBACK, Attachment::Generic)?;
            Ok(Self { _link: link, _namespace: namespace })
        };
        std::thread::scope(|scope| scope.spawn(keep).join())
            .unwrap_or_else(|_| Err(io::Error::other("the thread that keeps a program panicked")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// r0 = 2 (pass); exit.
    const PASS: [u64; 2] = [pair(0xb7, 2), pair(0x95, 0)];

    fn may_use_bpf() -> bool {
        SharedMap::new(8).is_ok()
    }

    #[test]
    fn memory_has_its_numbers_in_both_views() {
        let Ok(mut map) = SharedMap::new(20) else { return assert!(!may_use_bpf()) };
        map.write(8, 0x0102_0304_0506_0708);
        assert_eq!((map.read(8), map.read_half(8)), (0x0102_0304_0506_0708, 0x0506_0708));
        map.bytes_mut()[16..24].fill(0xff);
        assert_eq!((map.read(16), map.bytes_mut().len()), (u64::MAX, 24));
    }

    #[test]
    fn program_runs_on_a_frame() {
        if may_use_bpf() {
            let program = Program::load(&PASS).unwrap();
            assert_eq!(program.try_on(&[7; 60]).unwrap(), (2, vec![7; 60]));
        }
    }

    #[test]
    fn refused_program_has_the_verifiers_reason() {
        // Without an exit.
        let refusal = Program::load(&PASS[..1]).unwrap_err();
        assert!(!may_use_bpf() || !refusal.log.is_empty(), "{refusal:?}");
    }
}
