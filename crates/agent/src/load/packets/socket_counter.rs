//! Frames counted behind a packet socket, by a thread of this process: where BPF cannot be used, or frames are long. The
//! host's stack gets them too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use leadline_packet::account::FlowAccount;
use leadline_packet::frame::MAX_FRAME_LENGTH;
use leadline_packet::pktgen::header::Header;
use leadline_packet::trailer::Trailer;
use leadline_sys::clock::monotonic_ns;
use leadline_sys::frames::{FrameBatch, FrameSocket};
use leadline_sys::interfaces::Interface;
use leadline_sys::poll::{Interest, Poll};
use leadline_wire::{ErrorReport, PacketReceiverSpec, ReceivedFrames, ThreadReport};

use super::counter::{Counter, Tally};
use crate::events::{input_error, system_error};
use crate::metering::ThreadMeter;

/// Frames per call.
const BATCH: usize = 64;
/// How late an end may be seen, ns.
const LOOK_NS: u64 = 10_000_000;

struct Counted {
    tally: Tally,
    accounts: Vec<FlowAccount>,
    warm_until_ns: u64,
}

/// The thread at an interface.
pub struct SocketCounter {
    counted: Arc<Mutex<Counted>>,
    is_ended: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<ThreadReport>>>,
}

impl SocketCounter {
    /// Opens the socket and starts the thread.
    pub fn open(spec: &PacketReceiverSpec, interface: &Interface) -> Result<Arc<Self>, ErrorReport> {
        if spec.then == ReceivedFrames::Echo {
            return Err(input_error("no_echo", "a packet socket sends no frames back; that needs the path xdp"));
        }
        let name = &interface.name;
        let socket = FrameSocket::open(name)
            .map_err(|error| system_error(&format!("opening a packet socket on {name}"), &error))?;
        let mut poll = Poll::new(1).map_err(|error| system_error("polling frames", &error))?;
        poll.add(&socket, 0, Interest::Read).map_err(|error| system_error("polling frames", &error))?;
        let counted = Arc::new(Mutex::new(Counted {
            tally: Tally { lengths: vec![0; MAX_FRAME_LENGTH as usize + 1], overrun: Some(0), ..Tally::default() },
            accounts: vec![FlowAccount::default(); spec.flows as usize],
            warm_until_ns: u64::MAX,
        }));
        let is_ended = Arc::new(AtomicBool::new(false));
        let (own, ended, spec) = (Arc::clone(&counted), Arc::clone(&is_ended), spec.clone());
        let body = move || {
            let meter = ThreadMeter::begin("receive-0", monotonic_ns());
            let mut batch = FrameBatch::new(BATCH);
            loop {
                // What is in the queue at the end is counted too.
                let is_last = ended.load(Ordering::Acquire);
                let until_ns = if is_last { 0 } else { monotonic_ns() + LOOK_NS };
                let is_readable = poll.wait(Some(until_ns)).is_ok_and(|ready| ready.count() > 0);
                let received = if is_readable { batch.receive(&socket).unwrap_or(0) } else { 0 };
                let mut counted = locked(&own);
                (0..received).for_each(|index| counted.take(&batch, index, &spec));
                if received < BATCH {
                    let overruns = socket.overruns().unwrap_or(0);
                    counted.tally.overrun = counted.tally.overrun.map(|so_far| so_far + overruns);
                }
                if is_last && received == 0 {
                    return meter.end(monotonic_ns());
                }
            }
        };
        let thread = std::thread::Builder::new().name("receive-0".to_owned()).spawn(body);
        let thread = thread.map_err(|error| system_error("starting the receiver's thread", &error))?;
        Ok(Arc::new(Self { counted, is_ended, thread: Mutex::new(Some(thread)) }))
    }
}

impl Counted {
    fn take(&mut self, batch: &FrameBatch, index: usize, spec: &PacketReceiverSpec) {
        let Some(frame) = batch.frame(index) else { return };
        let Some(trailer) = read_numbers(frame.bytes, spec) else {
            self.tally.foreign += 1;
            return;
        };
        // The kernel took a tag out.
        let length = frame.bytes.len() + if frame.tag.is_some() { 4 } else { 0 };
        match self.tally.lengths.get_mut(length) {
            Some(frames) => *frames += 1,
            None => {
                self.tally.foreign += 1;
                return;
            }
        }
        let arrived_ns = frame.arrived_ns;
        self.tally.first_ns.get_or_insert(arrived_ns);
        self.tally.last_ns = Some(arrived_ns);
        if let Some(sent_ns) = trailer.time_ns {
            let sent_ns = sent_ns.wrapping_add_signed(spec.clock_ahead_ns.wrapping_neg());
            match arrived_ns.checked_sub(sent_ns) {
                Some(delay_ns) if sent_ns < self.warm_until_ns => self.tally.warm_up.record(delay_ns),
                Some(delay_ns) => self.tally.delays.record(delay_ns),
                None => self.tally.from_future += 1,
            }
        }
        match self.accounts.get_mut(trailer.flow as usize) {
            Some(account) if spec.pktgen.is_some_and(|streams| !streams.has_numbers) => account.frames += 1,
            Some(account) => account.count(trailer.sequence),
            None => self.tally.beyond += 1,
        }
    }
}

/// What a frame of the test says about itself, in our numbers or in pktgen's.
fn read_numbers(frame: &[u8], spec: &PacketReceiverSpec) -> Option<Trailer> {
    let Some(streams) = spec.pktgen else { return Trailer::read(frame, spec.test_id, spec.measures_delay) };
    let header = Header::find(frame)?;
    let flow = header.stream(streams.first_port, streams.ports);
    Some(Trailer { test_id: spec.test_id, flow, sequence: header.sequence, time_ns: None })
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counter for SocketCounter {
    fn tally(&self) -> Tally {
        locked(&self.counted).tally.clone()
    }

    fn account(&self, flow: u32) -> FlowAccount {
        locked(&self.counted).accounts[flow as usize]
    }

    fn warm_until(&self, until_ns: u64) {
        locked(&self.counted).warm_until_ns = until_ns;
    }

    fn end(&self) -> Option<ThreadReport> {
        self.is_ended.store(true, Ordering::Release);
        locked(&self.thread).take()?.join().ok()
    }
}

impl Drop for SocketCounter {
    fn drop(&mut self) {
        self.end();
    }
}
