//! Memory that the kernel fills: a ring of buffers (`io_uring_register_buf_ring`), of which each receive takes the
//! next. Owns the memory and the ownership of each buffer; never lends a buffer that the kernel may still write to.

use std::alloc::{alloc_zeroed, handle_alloc_error, Layout};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use io_uring::IoUring;

use crate::memory::page_bytes;

/// The single buffer group of a ring.
pub(super) const GROUP: u16 = 0;

/// Space between neighbours, so that the beginnings of many buffers, which are all that short responses use, do not
/// map to the same few cache lines.
const GAP_BYTES: usize = 320;

/// Buffers and the ring in which they are offered.
pub(super) struct Buffers {
    memory: NonNull<u8>,
    layout: Layout,
    entries: u16,
    bytes: usize,
    /// Counts offers; the ring's tail is published from it.
    tail: u16,
}

// SAFETY: the memory is owned, and reached only through `&self` and `&mut self`.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Creates `entries` (rounded up to a power of two) buffers of `bytes` each, all of them offered once they are
    /// registered.
    pub(super) fn new(entries: u16, bytes: u32) -> Self {
        let entries = entries.clamp(1, 1 << 14).next_power_of_two();
        let bytes = bytes.max(1) as usize;
        let size = usize::from(entries) * (size_of::<BufRingEntry>() + bytes + GAP_BYTES);
        // `IORING_REGISTER_PBUF_RING` requires a ring that begins on a page.
        let layout = Layout::from_size_align(size, page_bytes()).expect("2^14 buffers of 4 GiB fit the address space");
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        let mut buffers = Self { memory, layout, entries, bytes, tail: 0 };
        for id in 0..entries {
            buffers.offer(id);
        }
        buffers
    }

    /// Registers the buffers with `ring`, which must end before they do.
    pub(super) fn register(&self, ring: &IoUring) -> io::Result<()> {
        // SAFETY: the memory is page-aligned, holds `entries` entries, and `Ring` frees it only once no operation is
        // in flight and the kernel has dropped the group.
        unsafe { ring.submitter().register_buf_ring_with_flags(self.memory.as_ptr() as u64, self.entries, GROUP, 0) }
    }

    /// Offers a buffer to the kernel: once when it is created and then once per receive that used it.
    pub(super) fn offer(&mut self, id: u16) {
        assert!(id < self.entries, "the kernel names only buffers that it was given");
        let place = usize::from(self.tail & (self.entries - 1));
        self.tail = self.tail.wrapping_add(1);
        let address = self.memory.as_ptr() as u64 + self.offset(id) as u64;
        // SAFETY: `place` is below `entries`. At most `entries` buffers are offered, so this entry has been consumed,
        // and the kernel reads it again only after the tail is published below. The fields are set one by one because
        // the first entry's spare field is the tail.
        unsafe {
            let base = self.memory.as_ptr().cast::<BufRingEntry>();
            let entry = &mut *base.add(place);
            entry.set_addr(address);
            entry.set_len(self.bytes as u32);
            entry.set_bid(id);
            let tail = AtomicU16::from_ptr(BufRingEntry::tail(base).cast_mut());
            tail.store(self.tail, Ordering::Release);
        }
    }

    /// Returns the bytes that the kernel wrote into a buffer that it named in a completion and that was not offered
    /// since.
    pub(super) fn filled(&self, id: u16, length: usize) -> &[u8] {
        assert!(id < self.entries && length <= self.bytes, "the kernel writes into its buffers");
        // SAFETY: within the memory, initialised (zeroed at first), and not the kernel's until it is offered, which
        // takes `&mut self`.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(self.offset(id)), length) }
    }

    fn offset(&self, id: u16) -> usize {
        usize::from(self.entries) * size_of::<BufRingEntry>() + usize::from(id) * (self.bytes + GAP_BYTES)
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; `Ring::drop` drops it only when the kernel no longer uses it.
        unsafe { std::alloc::dealloc(self.memory.as_ptr(), self.layout) };
    }
}
