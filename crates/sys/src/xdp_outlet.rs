//! Frames sent through an AF_XDP socket: this process writes them into memory that it shares with the kernel, and tells it
//! where they are. A driver that can takes them from there itself (zero-copy); otherwise the kernel copies them.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::clock::{monotonic_ns, sleep_until};
use crate::links::interface_index;

/// Places for frames' parts in each ring; a power of two.
const RING_PLACES: u32 = 2048;
/// The kernel wants a ring for received frames' memory, of which none are received.
const UNUSED_PLACES: u32 = 64;
/// Where frames begin in the shared memory is a multiple of it; longer frames have several parts.
const SHORT_PART: usize = 2048;
const LONG_PART: usize = 4096;
/// Calls after which a queue that takes nothing is left for later.
const MAX_CALLS: u32 = 8;
/// How long the kernel may take to give back the queue of a socket that was closed, and how often to look, ns.
const GIVEN_BACK_NS: u64 = 1_000_000_000;
const BIND_AGAIN_NS: u64 = 2_000_000;
/// XDP_USE_SG and XDP_PKT_CONTD, since Linux 6.6.
const HAS_PARTS: u16 = 1 << 4;
const IS_CONTINUED: u32 = 1;

/// Memory that ends with this value.
struct Mapping {
    memory: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// New memory of zeros, or that of a descriptor from an offset on.
    fn new(bytes: usize, file: Option<(&OwnedFd, libc::off_t)>) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (kind, fd, offset) = match file {
            Some((file, offset)) => (libc::MAP_SHARED | libc::MAP_POPULATE, file.as_raw_fd(), offset),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
        };
        // SAFETY: a new mapping, which no other object owns.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, fd, offset) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, bytes })
    }

    /// A counter in the memory.
    fn number(&self, at: u64) -> &AtomicU32 {
        let at = at as usize;
        assert!(at % 4 == 0 && at + 4 <= self.bytes, "a number at {at} of {} bytes", self.bytes);
        // SAFETY: within the mapping and aligned, as just checked; the kernel changes it by aligned stores.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(at).cast()) }
    }

    /// The place of one item of an array in the memory.
    fn item<T>(&self, begin: u64, index: u32) -> *mut T {
        let at = begin as usize + index as usize * size_of::<T>();
        assert!(at % align_of::<T>() == 0 && at + size_of::<T>() <= self.bytes, "an item at {at} of {}", self.bytes);
        // SAFETY: within the mapping, as just checked.
        unsafe { self.memory.as_ptr().add(at).cast() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nothing refers to any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

/// A ring that this process and the kernel share.
struct Ring {
    memory: Mapping,
    offsets: libc::xdp_ring_offset,
}

impl Ring {
    fn open(socket: &OwnedFd, offsets: libc::xdp_ring_offset, item: usize, page: libc::off_t) -> io::Result<Self> {
        let bytes = offsets.desc as usize + RING_PLACES as usize * item;
        Ok(Self { memory: Mapping::new(bytes, Some((socket, page)))?, offsets })
    }

    fn producer(&self) -> &AtomicU32 {
        self.memory.number(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.memory.number(self.offsets.consumer)
    }

    /// What was put in and not yet taken out.
    fn count_pending(&self) -> u32 {
        self.producer().load(Ordering::Acquire).wrapping_sub(self.consumer().load(Ordering::Acquire))
    }
}

/// A socket that sends frames from one queue of an interface.
pub struct XdpOutlet {
    socket: OwnedFd,
    memory: Mapping,
    transmit: Ring,
    completed: Ring,
    part_bytes: usize,
    parts: u32,
    /// Places for frames that no frame is in.
    free: Vec<u32>,
    /// Of each place, the parts that the kernel has.
    taken: Vec<u8>,
    /// Of each frame that is being written: its place and its length.
    slots: Vec<(u32, usize)>,
    outstanding_parts: u32,
    /// Whether the driver takes frames from this process's memory itself.
    pub is_zero_copy: bool,
}

// SAFETY: the mappings belong to this value, and are only accessed through it.
unsafe impl Send for XdpOutlet {}

impl XdpOutlet {
    /// Opens a socket for a queue of an interface; `slots` frames of at most `slot_bytes` are written at once.
    /// `is_copied` leaves the driver's queue as it is, where a driver could take frames from this memory itself.
    ///
    /// # Errors
    /// The system's: `EPERM`, `ENODEV`; `EBUSY` if another socket has the queue, `EINVAL` if there is no such queue, or
    /// the kernel sends no frames of several parts.
    pub fn open(interface: &str, queue: u32, slots: usize, slot_bytes: usize, is_copied: bool) -> io::Result<Self> {
        let index = interface_index(interface)?;
        let part_bytes = if slot_bytes <= SHORT_PART { SHORT_PART } else { LONG_PART };
        let parts = slot_bytes.div_ceil(part_bytes).max(1) as u32;
        let places = RING_PLACES / parts;
        let memory = Mapping::new(places as usize * parts as usize * part_bytes, None)?;
        // SAFETY: a plain system call; a non-negative result is a descriptor that no other object owns.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        // SAFETY: an all-zero registration is valid: no room in front of frames, no metadata.
        let mut shared: libc::xdp_umem_reg = unsafe { zeroed() };
        shared.addr = memory.memory.as_ptr() as u64;
        shared.len = memory.bytes as u64;
        shared.chunk_size = part_bytes as u32;
        set(&socket, libc::XDP_UMEM_REG, &shared)?;
        set(&socket, libc::XDP_UMEM_FILL_RING, &UNUSED_PLACES)?;
        set(&socket, libc::XDP_UMEM_COMPLETION_RING, &RING_PLACES)?;
        set(&socket, libc::XDP_TX_RING, &RING_PLACES)?;
        // SAFETY: all-zero offsets are valid; the kernel writes them.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { zeroed() };
        get(&socket, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
        let transmit_page = libc::XDP_PGOFF_TX_RING as libc::off_t;
        let completed_page = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let transmit = Ring::open(&socket, offsets.tx, size_of::<libc::xdp_desc>(), transmit_page)?;
        let completed = Ring::open(&socket, offsets.cr, size_of::<u64>(), completed_page)?;
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_USE_NEED_WAKEUP
                | if parts > 1 { HAS_PARTS } else { 0 }
                | if is_copied { libc::XDP_COPY } else { 0 },
            sxdp_ifindex: index,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        bind(&socket, &address)?;
        let mut options = libc::xdp_options { flags: 0 };
        get(&socket, libc::XDP_OPTIONS, &mut options)?;
        Ok(Self {
            socket,
            memory,
            transmit,
            completed,
            part_bytes,
            parts,
            free: (0..places).rev().collect(),
            taken: vec![0; places as usize],
            slots: vec![(0, 0); slots],
            outstanding_parts: 0,
            is_zero_copy: options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0,
        })
    }

    /// Makes room for frames; returns for how many there is, up to the wanted ones.
    ///
    /// # Errors
    /// The system's, as `ENETDOWN`.
    pub fn room(&mut self, wanted: usize) -> io::Result<usize> {
        self.take_completed();
        if self.free.len() < wanted {
            self.wake()?;
            self.take_completed();
        }
        Ok(self.free.len().min(wanted))
    }

    /// Memory for a frame of this length.
    ///
    /// # Panics
    /// If there is no room, no such slot, or it is too short.
    #[inline]
    pub fn slot(&mut self, slot: usize, length: usize) -> &mut [u8] {
        let most = self.part_bytes * self.parts as usize;
        assert!(length <= most, "a frame of {length} bytes in a slot of {most}");
        let place = self.free.pop().expect("there is room");
        self.slots[slot] = (place, length);
        let at = place as usize * most;
        // SAFETY: within the mapping, since every place is; the kernel has given the place back, or never had it.
        unsafe { std::slice::from_raw_parts_mut(self.memory.memory.as_ptr().add(at), length) }
    }

    /// Hands the frames of the slots `from` up to, and without, `to` to the kernel, and wakes it.
    ///
    /// # Errors
    /// The system's, as `ENETDOWN`.
    #[inline]
    pub fn send(&mut self, from: usize, to: usize) -> io::Result<()> {
        let mut at = self.transmit.producer().load(Ordering::Relaxed);
        for (place, length) in &self.slots[from..to] {
            let begin = u64::from(*place) * u64::from(self.parts) * self.part_bytes as u64;
            let count = length.div_ceil(self.part_bytes).max(1);
            self.taken[*place as usize] = count as u8;
            for part in 0..count {
                let done = part * self.part_bytes;
                let described = libc::xdp_desc {
                    addr: begin + done as u64,
                    len: (length - done).min(self.part_bytes) as u32,
                    options: if part + 1 < count { IS_CONTINUED } else { 0 },
                };
                let item = self.transmit.memory.item(self.transmit.offsets.desc, at % RING_PLACES);
                // SAFETY: a place of the ring that the kernel has read: there are no more parts than places.
                unsafe { std::ptr::write(item, described) };
                at = at.wrapping_add(1);
                self.outstanding_parts += 1;
            }
        }
        self.transmit.producer().store(at, Ordering::Release);
        self.wake()
    }

    /// Parts of frames that the kernel was given and has not sent.
    pub fn count_outstanding(&mut self) -> io::Result<u32> {
        self.wake()?;
        self.take_completed();
        Ok(self.outstanding_parts)
    }

    fn take_completed(&mut self) {
        let (begin, count) = (self.completed.consumer().load(Ordering::Relaxed), self.completed.count_pending());
        for number in 0..count {
            let item: *mut u64 =
                self.completed.memory.item(self.completed.offsets.desc, begin.wrapping_add(number) % RING_PLACES);
            // SAFETY: a place of the ring that the kernel has written: it is before the producer's.
            let address = unsafe { std::ptr::read(item) } as usize;
            let place = address / (self.part_bytes * self.parts as usize);
            self.taken[place] -= 1;
            if self.taken[place] == 0 {
                self.free.push(place as u32);
            }
        }
        self.outstanding_parts = self.outstanding_parts.saturating_sub(count);
        self.completed.consumer().store(begin.wrapping_add(count), Ordering::Release);
    }

    /// Lets the kernel send what it was given, as far as its queue takes it now.
    fn wake(&mut self) -> io::Result<()> {
        for _ in 0..MAX_CALLS {
            if self.transmit.count_pending() == 0 {
                return Ok(());
            }
            let none = std::ptr::null();
            // SAFETY: no data and no address are given.
            let sent = unsafe { libc::sendto(self.socket.as_raw_fd(), none, 0, libc::MSG_DONTWAIT, none.cast(), 0) };
            if sent >= 0 {
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                // A part of what was given is sent per call.
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => {}
                _ => return Err(error),
            }
        }
        Ok(())
    }
}

/// Binds the socket to its queue. The kernel gives the queue of a socket that was closed back a little later.
fn bind(socket: &OwnedFd, address: &libc::sockaddr_xdp) -> io::Result<()> {
    let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    let until_ns = monotonic_ns() + GIVEN_BACK_NS;
    loop {
        // SAFETY: the kernel reads as many bytes as the address has.
        if unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(address).cast(), length) } >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EBUSY) || monotonic_ns() >= until_ns {
            return Err(error);
        }
        sleep_until(monotonic_ns() + BIND_AGAIN_NS);
    }
}

fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads as many bytes as the value has.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, std::ptr::from_ref(value).cast(), length)
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn get<T>(socket: &OwnedFd, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most as many bytes as the value has.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, std::ptr::from_mut(value).cast(), &mut length)
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
