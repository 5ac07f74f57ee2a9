//! Completions by io_uring: many sockets, each in a numbered slot, receive by one multishot request, and send pieces
//! of one constant payload or copies of given bytes. Owns the kernel's objects (registered files, buffers, operations
//! in flight) and all memory that they refer to; the caller owns the sockets.
#![allow(unsafe_code)]

mod buffers;
mod completion;
mod operation;
mod outgoing;
mod sending;
mod serving;
mod stamped;
#[cfg(test)]
mod tests;

use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use io_uring::types::{CancelBuilder, Fixed, SubmitArgs, Timespec};
use io_uring::{cqueue, opcode, squeue, EnterFlags, IoUring};

use self::buffers::Buffers;
pub use self::completion::{Completion, Left, Sending};
use self::operation::{
    generation_of, slot_of, token, ACCEPT, CANCEL, CANCEL_SEND, COPY, GENERATIONS, RECEIVE, SEND, WATCH,
};
use self::outgoing::{Flight, Outgoing};
use self::stamped::Stamped;
pub(crate) use self::stamped::{stamp_ns, CONTROL_BYTES};
use crate::clock::monotonic_ns;

/// The parameters of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Sockets at once.
    pub slots: u32,
    /// Buffers for receiving; a power of two.
    pub buffers: u16,
    /// A buffer's size.
    pub buffer_bytes: u32,
    /// Operations that are submitted by one system call at most: the first one waits for the last one.
    pub batch: u32,
    /// Waits of up to this length are busy waits, ns: sleeping and waking up would take longer.
    pub awake_ns: u64,
}

/// The longest check for completions, ns.
const LONGEST_STEP_NS: u64 = 2_000;
/// Entries of the submission queue; more operations at a time only cost another system call.
const SUBMISSIONS: u32 = 256;

#[derive(Clone, Copy, Default)]
struct Slot {
    generation: u32,
    is_registered: bool,
    is_receiving: bool,
    is_paused: bool,
    is_stamped: bool,
    is_watched: bool,
    is_accepting: bool,
    flight: Flight,
}

/// A completion that has been reaped: its owner, its result, and the time when it was seen, ns.
#[derive(Clone, Copy)]
struct Reaped {
    user_data: u64,
    result: i32,
    flags: u32,
    at_ns: u64,
}

/// One thread's ring.
pub struct Ring {
    /// Dropped explicitly, in this order, once no operation is in flight.
    uring: ManuallyDrop<IoUring>,
    buffers: ManuallyDrop<Buffers>,
    outgoing: ManuallyDrop<Outgoing>,
    stamped: ManuallyDrop<Stamped>,
    slots: Box<[Slot]>,
    batch: u32,
    awake_ns: u64,
    spun_ns: u64,
    queued: u32,
    /// When operations were last submitted to the kernel, ns.
    handed_over_ns: u64,
    reaped: Vec<Reaped>,
    next: usize,
    /// The buffer that `received` shows, the part of it, and the kernel's timestamp on it.
    lent: Option<(u16, Range<usize>)>,
    stamp_ns: Option<u64>,
    starved: u64,
}

impl Ring {
    /// Creates a ring. [`Ring::enable`] has to bind it to its thread before it is used.
    ///
    /// # Errors
    /// The system's reason why there is no io_uring, or none that is new enough (`Unsupported`; Linux 6.0).
    pub fn new(options: &Options, payload: Box<[u8]>) -> io::Result<Self> {
        let uring = build(options)?;
        let mut probe = io_uring::Probe::new();
        uring.submitter().register_probe(&mut probe)?;
        // Multishot receive cannot be probed by itself; it came with the same release (6.0) as this operation.
        if !probe.is_supported(opcode::SendZc::CODE) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel is older than 6.0"));
        }
        uring.submitter().register_files_sparse(options.slots.max(1))?;
        let buffers = Buffers::new(options.buffers, options.buffer_bytes);
        buffers.register(&uring)?;
        Ok(Self {
            uring: ManuallyDrop::new(uring),
            buffers: ManuallyDrop::new(buffers),
            outgoing: ManuallyDrop::new(Outgoing::new(payload, options.slots as usize)),
            stamped: ManuallyDrop::new(Stamped::new()),
            slots: vec![Slot::default(); options.slots as usize].into_boxed_slice(),
            batch: options.batch.clamp(1, SUBMISSIONS),
            awake_ns: options.awake_ns,
            spun_ns: 0,
            queued: 0,
            handed_over_ns: 0,
            reaped: Vec::with_capacity(SUBMISSIONS as usize),
            next: 0,
            lent: None,
            stamp_ns: None,
            starved: 0,
        })
    }

    /// Enables the ring; from now on only this thread may use it.
    pub fn enable(&mut self) -> io::Result<()> {
        self.uring.submitter().register_enable_rings()
    }

    /// Returns the time spent in busy waits, ns.
    pub fn spun_ns(&self) -> u64 {
        self.spun_ns
    }

    /// Returns how often a receive found no free buffer and had to be restarted.
    pub fn starved(&self) -> u64 {
        self.starved
    }

    /// Reports once when a socket is writable or has failed, for a connection that is being established. From here to
    /// [`Ring::detach`] the kernel holds the socket, so that it watches this one whatever happens to its descriptor.
    pub fn watch(&mut self, slot: usize, socket: impl AsFd) -> io::Result<()> {
        self.register(slot, socket)?;
        let token = token(WATCH, slot, self.slots[slot].generation);
        self.slots[slot].is_watched = true;
        self.push(opcode::PollAdd::new(Fixed(slot as u32), libc::POLLOUT as u32).build().user_data(token))
    }

    fn register(&mut self, slot: usize, socket: impl AsFd) -> io::Result<()> {
        self.uring.submitter().register_files_update(slot as u32, &[socket.as_fd().as_raw_fd()])?;
        self.slots[slot].is_registered = true;
        Ok(())
    }

    /// Receives from a socket from now on; from the watched one, if the slot watches one. The socket has to be in
    /// blocking mode: the ring never blocks on it, but would report "try again" for a non-blocking one instead of
    /// waiting. With `stamped`, which needs [`crate::connect::stamp_received`] on the socket, [`Ring::stamp_ns`]
    /// returns when the kernel had the received data.
    pub fn attach(&mut self, slot: usize, socket: impl AsFd, stamped: bool) -> io::Result<()> {
        if !self.slots[slot].is_registered {
            self.register(slot, socket)?;
        }
        self.slots[slot].is_stamped = stamped;
        self.receive(slot)
    }

    /// Gives a slot up: its socket causes no more completions. Returns the state of its last send.
    pub fn detach(&mut self, slot: usize) -> io::Result<Left> {
        let Slot { generation, is_registered, is_receiving, is_watched, is_accepting, flight, .. } = self.slots[slot];
        let cancel = |kind, own| {
            let entry = opcode::AsyncCancel2::new(CancelBuilder::user_data(token(kind, slot, generation))).build();
            entry.user_data(token(own, slot, generation))
        };
        if let Some(kind) = flight.kind() {
            self.push(cancel(kind, CANCEL_SEND))?;
        }
        for (is_under_way, kind) in [(is_receiving, RECEIVE), (is_watched, WATCH), (is_accepting, ACCEPT)] {
            if is_under_way {
                self.push(cancel(kind, CANCEL).flags(squeue::Flags::SKIP_SUCCESS))?;
            }
        }
        // Queued operations name the slot's number, so they have to be submitted before the number means another
        // socket.
        self.flush()?;
        let left = self.left_of(slot, generation, flight)?;
        self.slots[slot] = Slot { generation: (generation + 1) & GENERATIONS, ..Slot::default() };
        self.outgoing.retire(slot, matches!(flight, Flight::Copy).then(|| token(COPY, slot, generation)));
        if is_registered {
            self.uring.submitter().register_files_update(slot as u32, &[-1])?;
        }
        Ok(left)
    }

    /// Submits queued operations and waits until there is a completion, or `until_ns` (monotonic) has passed.
    pub fn wait(&mut self, until_ns: u64) -> io::Result<()> {
        if self.next < self.reaped.len() {
            return Ok(());
        }
        self.reaped.clear();
        self.next = 0;
        self.return_lent();
        let now_ns = monotonic_ns();
        let left_ns = until_ns.saturating_sub(now_ns);
        if self.queued > 0 {
            self.handed_over_ns = now_ns;
        }
        if left_ns > self.awake_ns {
            self.call(1, Some(left_ns))?;
            self.reap();
            return Ok(());
        }
        self.call(0, Some(0))?;
        self.reap();
        if self.reaped.is_empty() && left_ns > 0 {
            self.spin(until_ns)?;
        }
        Ok(())
    }

    /// Checks for completions until `until_ns`. The kernel sets a flag in shared memory when it has any, so that a
    /// check needs no system call.
    fn spin(&mut self, until_ns: u64) -> io::Result<()> {
        let mut before_ns = monotonic_ns();
        while self.reaped.is_empty() && before_ns < until_ns {
            std::hint::spin_loop();
            let is_news = self.uring.submission().taskrun() || !self.uring.completion().is_empty();
            if is_news {
                self.enter(0, Some(0))?;
                self.reap();
            }
            let now_ns = monotonic_ns();
            // In a longer step this thread was working, or another one ran.
            if !is_news && now_ns - before_ns < LONGEST_STEP_NS {
                self.spun_ns += now_ns - before_ns;
            }
            before_ns = now_ns;
        }
        Ok(())
    }

    /// Returns the next completion: its slot, when it was seen (ns), and the event.
    #[inline]
    pub fn completion(&mut self) -> io::Result<Option<(usize, u64, Completion)>> {
        self.return_lent();
        while let Some(&reaped) = self.reaped.get(self.next) {
            self.next += 1;
            if let Some(completion) = self.take(&reaped)? {
                return Ok(Some((slot_of(reaped.user_data), reaped.at_ns, completion)));
            }
        }
        Ok(None)
    }

    /// Returns the bytes of the last [`Ring::completion`].
    #[inline]
    pub fn received(&self) -> &[u8] {
        self.lent.as_ref().map_or(&[], |(id, part)| &self.buffers.filled(*id, part.end)[part.start..])
    }

    /// Returns when the kernel had them, ns on the real-time clock, if it reported it.
    pub fn stamp_ns(&self) -> Option<u64> {
        self.stamp_ns
    }

    #[inline]
    fn return_lent(&mut self) {
        if let Some((id, _)) = self.lent.take() {
            self.buffers.offer(id);
        }
    }

    /// Returns the event of a reaped completion; `None` if it concerns only the ring.
    #[inline]
    fn take(&mut self, reaped: &Reaped) -> io::Result<Option<Completion>> {
        let &Reaped { user_data, result, flags, .. } = reaped;
        self.lent = cqueue::buffer_select(flags).map(|id| (id, 0..result.max(0) as usize));
        let slot = slot_of(user_data);
        let place = &mut self.slots[slot];
        if generation_of(user_data) != place.generation {
            self.return_lent();
            match user_data & 0xff {
                COPY => self.outgoing.forget(user_data),
                // Its slot was given up: the connection is closed.
                ACCEPT => drop(accepted_socket(result)),
                _ => {}
            }
            return Ok(None);
        }
        match user_data & 0xff {
            RECEIVE => self.take_received(slot, result, flags),
            ACCEPT => self.take_accepted(slot, result, flags).map(Some),
            kind @ (SEND | COPY) => self.take_sent(kind, slot, result).map(Some),
            WATCH => {
                place.is_watched = false;
                Ok(Some(Completion::Writable))
            }
            _ => Ok(None),
        }
    }

    #[inline]
    fn take_received(&mut self, slot: usize, result: i32, flags: u32) -> io::Result<Option<Completion>> {
        let place = &mut self.slots[slot];
        place.is_receiving = cqueue::more(flags);
        let mut bytes = result;
        self.stamp_ns = None;
        if let (true, 1.., Some((id, part))) = (place.is_stamped, result, &mut self.lent) {
            let (payload, stamp_ns) = self.stamped.read(self.buffers.filled(*id, part.end))?;
            (bytes, *part, self.stamp_ns) = (payload.len() as i32, payload, stamp_ns);
        }
        let (starved, paused) = (result == -libc::ENOBUFS, result == -libc::ECANCELED);
        self.starved += u64::from(starved);
        if (bytes > 0 || starved || paused) && !cqueue::more(flags) && !self.slots[slot].is_paused {
            self.receive(slot)?;
        }
        Ok(match bytes {
            1.. => Some(Completion::Received),
            0 => Some(Completion::Ended(Ok(()))),
            _ if starved || paused => None,
            _ => Some(Completion::Ended(Err(io::Error::from_raw_os_error(-result)))),
        })
    }

    fn receive(&mut self, slot: usize) -> io::Result<()> {
        self.slots[slot].is_receiving = true;
        let token = token(RECEIVE, slot, self.slots[slot].generation);
        let file = Fixed(slot as u32);
        let entry = if self.slots[slot].is_stamped {
            opcode::RecvMsgMulti::new(file, self.stamped.header(), buffers::GROUP).build()
        } else {
            opcode::RecvMulti::new(file, buffers::GROUP).build()
        };
        self.push(entry.user_data(token))
    }

    #[inline]
    fn push(&mut self, entry: squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: an entry points into `outgoing` or `stamped`, which keep the memory until the operation has
            // completed, and `drop` keeps both until no operation is in flight; the descriptors are open or their
            // operation fails.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                self.queued += 1;
                return Ok(());
            }
            self.flush()?;
        }
    }

    /// Submits queued operations.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.queued > 0 {
            self.enter(0, None)?;
            if self.queued > 0 {
                // The kernel accepts no more while completions have no room.
                self.reap();
            }
        }
        Ok(())
    }

    /// Like [`Ring::call`], and records when queued operations are submitted.
    fn enter(&mut self, want: u32, left_ns: Option<u64>) -> io::Result<()> {
        if self.queued > 0 {
            self.handed_over_ns = monotonic_ns();
        }
        self.call(want, left_ns)
    }

    /// Returns when the last operation begun so far was submitted to the kernel, ns; `None` while some are queued.
    #[inline]
    pub fn handed_over_ns(&self) -> Option<u64> {
        (self.queued == 0).then_some(self.handed_over_ns)
    }

    /// Submits queued operations, waits for `want` completions and at most `left_ns` if given, and lets the kernel do
    /// its deferred work.
    #[inline]
    fn call(&mut self, want: u32, left_ns: Option<u64>) -> io::Result<()> {
        let time = left_ns.map(|left| Timespec::new().sec(left / 1_000_000_000).nsec((left % 1_000_000_000) as u32));
        let arguments = time.as_ref().map(|time| SubmitArgs::new().timespec(time));
        let flags = match arguments {
            Some(_) => EnterFlags::GETEVENTS | EnterFlags::EXT_ARG,
            None => EnterFlags::empty(),
        };
        // SAFETY: `arguments` and the time that it points to outlive the call; without EXT_ARG it is null.
        let entered = unsafe { self.uring.submitter().enter(self.queued, want, flags.bits(), arguments.as_ref()) };
        match entered {
            Ok(handed_over) => {
                self.queued -= (handed_over as u32).min(self.queued);
                Ok(())
            }
            // The time is over; a signal arrived; completions have to be reaped before more can be accepted.
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EBUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Reaps completions. All of them were there by now, so that one reading of the clock serves for all; those
    /// handled first do not make the others late.
    fn reap(&mut self) {
        let mut completions = self.uring.completion();
        if completions.is_empty() {
            return;
        }
        let at_ns = monotonic_ns();
        self.reaped.extend(completions.by_ref().map(|entry| Reaped {
            user_data: entry.user_data(),
            result: entry.result(),
            flags: entry.flags(),
            at_ns,
        }));
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Operations that wait for their socket hold it open and may still write to the buffers; this cancels them
        // and returns when they have ended. A ring that was never enabled has none.
        let ended = match self.uring.submitter().register_sync_cancel(None, CancelBuilder::any()) {
            Err(error) => matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EBADFD)),
            Ok(()) => true,
        };
        // Cancelled operations complete when their thread enters the kernel; this fails only if no operation was ever
        // begun.
        let _ = self.enter(0, Some(0));
        self.reap();
        // Connections that were accepted and never returned.
        for reaped in self.reaped.drain(self.next..).filter(|reaped| reaped.user_data & 0xff == ACCEPT) {
            drop(accepted_socket(reaped.result));
        }
        let forgotten = self.uring.submitter().unregister_buf_ring(buffers::GROUP).is_ok();
        // SAFETY: none is used again; the memory is freed only if the kernel holds no more references to it, and is
        // leaked if that is unknown.
        unsafe {
            ManuallyDrop::drop(&mut self.uring);
            if ended && forgotten {
                ManuallyDrop::drop(&mut self.buffers);
                ManuallyDrop::drop(&mut self.outgoing);
                ManuallyDrop::drop(&mut self.stamped);
            }
        }
    }
}

/// Builds the ring with the cheapest options that the kernel supports: first completions that are processed when
/// their thread waits, then the older ways.
fn build(options: &Options) -> io::Result<IoUring> {
    let completions = options.slots.saturating_mul(2).clamp(1024, 1 << 16);
    let mut last = None;
    for level in 0..3 {
        let mut builder = IoUring::builder();
        // Disabled at first: the thread that enables it becomes the single issuer.
        builder.setup_r_disabled().setup_clamp().setup_cqsize(completions);
        match level {
            0 => builder.setup_submit_all().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag(),
            1 => builder.setup_submit_all().setup_coop_taskrun().setup_taskrun_flag(),
            _ => &mut builder,
        };
        match builder.build(SUBMISSIONS) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => last = Some(error),
            built => return built,
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::Unsupported.into()))
}

/// Returns the connection of a successful accept; closed when dropped.
fn accepted_socket(result: i32) -> Option<OwnedFd> {
    // SAFETY: the kernel created this descriptor only for us, and each completion is taken once.
    (result >= 0).then(|| unsafe { OwnedFd::from_raw_fd(result) })
}
