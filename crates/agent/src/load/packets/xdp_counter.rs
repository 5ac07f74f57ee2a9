//! Frames counted by a BPF program at the driver (`leadline_packet::bpf::receiver`): no thread of this process works for
//! them.

use leadline_packet::account::FlowAccount;
use leadline_packet::bpf::bucket::BUCKETS;
use leadline_packet::bpf::receiver::{account_at, block, ReceiverProgram, Verdict, ACCOUNT_BYTES, BLOCK_BYTES};
use leadline_packet::frame::MAX_FRAME_LENGTH;
use leadline_stats::Histogram;
use leadline_sys::bpf::{Attachment, Program, SharedMap, XdpLink};
use leadline_sys::interfaces::Interface;
use leadline_wire::{PacketReceiverSpec, ReceivedFrames, ThreadReport};

use super::counter::{Counter, Tally};
use super::path::NoPath;

/// A program in a driver takes frames of one page: this is the longest packet of which that is true everywhere.
const MAX_MTU: u32 = 3000;

/// The program at an interface.
pub struct XdpCounter {
    blocks: SharedMap,
    accounts: SharedMap,
    cpus: usize,
    link: std::sync::Mutex<Option<XdpLink>>,
    _program: Program,
}

impl XdpCounter {
    /// Attaches the program to the driver, or behind it where the driver has no place for one; returns which.
    pub fn open(spec: &PacketReceiverSpec, interface: &Interface) -> Result<(Self, String), NoPath> {
        let name = &interface.name;
        if let Some(mtu) = interface.mtu.filter(|mtu| *mtu > MAX_MTU && !interface.is_loopback) {
            let message = format!("an MTU of {mtu} on {name}: xdp counts frames of an MTU up to {MAX_MTU}");
            return Err(NoPath::new("long_frames", message));
        }
        let cpus = leadline_sys::usage::cpus_possible();
        let memory = |error: std::io::Error| NoPath::new("no_bpf", format!("memory for the counters: {error}"));
        let blocks = SharedMap::new(BLOCK_BYTES * cpus).map_err(memory)?;
        let accounts = SharedMap::new(ACCOUNT_BYTES * spec.flows as usize).map_err(memory)?;
        // Until the load has a start, all delays are those of the warm-up.
        (0..cpus).for_each(|cpu| blocks.write(cpu * BLOCK_BYTES + block::WARM_UNTIL_NS, u64::MAX));
        let layout = ReceiverProgram {
            blocks: blocks.number(),
            cpus: cpus as u32,
            accounts: accounts.number(),
            flows: spec.flows,
            test_id: spec.test_id,
            pktgen: spec.pktgen,
            verdict: match spec.then {
                ReceivedFrames::Drop => Verdict::Drop,
                ReceivedFrames::Pass => Verdict::Pass,
                ReceivedFrames::Echo => Verdict::Echo,
            },
            measures_delay: spec.measures_delay,
            clock_ahead_ns: spec.clock_ahead_ns,
        };
        let program = Program::load(&layout.assemble()).map_err(|refusal| {
            NoPath::new(
                "no_bpf",
                format!("the kernel refuses the receiver's program: {}; {}", refusal.error, refusal.log),
            )
        })?;
        let attach = |attachment| XdpLink::attach(&program, interface.index, attachment);
        let (link, reason) = match attach(Attachment::Driver) {
            Ok(link) => (link, "in the driver".to_owned()),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                let message = format!("{name} has an XDP program of another test or tool (`ip link show {name}`)");
                return Err(NoPath::new("busy", message));
            }
            Err(error) => match attach(Attachment::Generic) {
                Ok(link) => (link, format!("behind the driver of {name}, which takes no program: {error}")),
                Err(error) => {
                    return Err(NoPath::new("no_xdp", format!("{name} takes no XDP program: {error}")));
                }
            },
        };
        let link = std::sync::Mutex::new(Some(link));
        Ok((Self { blocks, accounts, cpus, link, _program: program }, reason))
    }

    fn histogram(&self, at: usize) -> Histogram {
        let mut histogram = Histogram::new();
        for cpu in 0..self.cpus {
            let count = |place: usize| self.blocks.read(cpu * BLOCK_BYTES + at + 8 * place);
            histogram.add_counts((1..=BUCKETS).map(count), count(0));
        }
        histogram
    }
}

impl Counter for XdpCounter {
    fn so_far(&self) -> (u64, u64) {
        let frames = |length: usize| {
            (0..self.cpus).map(|cpu| self.blocks.read(cpu * BLOCK_BYTES + block::LENGTHS + 8 * length)).sum::<u64>()
        };
        let counted = (0..=MAX_FRAME_LENGTH as usize).map(|length| (frames(length), length as u64));
        counted.fold((0, 0), |(all, bytes), (frames, length)| (all + frames, bytes + frames * length))
    }

    fn tally(&self) -> Tally {
        let all = |at: usize| (0..self.cpus).map(move |cpu| self.blocks.read(cpu * BLOCK_BYTES + at));
        let sum = |at: usize| all(at).sum::<u64>();
        Tally {
            lengths: (0..=MAX_FRAME_LENGTH as usize).map(|length| sum(block::LENGTHS + 8 * length)).collect(),
            foreign: sum(block::FOREIGN),
            beyond: sum(block::BEYOND),
            echoed: sum(block::ECHOED),
            // A program has no queue: the interface counts what finds no room in front of it.
            overrun: Some(0),
            first_ns: all(block::FIRST_NS).filter(|ns| *ns > 0).min(),
            last_ns: all(block::LAST_NS).filter(|ns| *ns > 0).max(),
            delays: self.histogram(block::DELAYS),
            warm_up: self.histogram(block::WARM_UP),
            from_future: sum(block::FROM_FUTURE),
        }
    }

    fn account(&self, flow: u32) -> FlowAccount {
        account_at(|at| self.accounts.read(at), flow)
    }

    fn warm_until(&self, until_ns: u64) {
        (0..self.cpus).for_each(|cpu| self.blocks.write(cpu * BLOCK_BYTES + block::WARM_UNTIL_NS, until_ns));
    }

    fn end(&self) -> Option<ThreadReport> {
        self.link.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        None
    }
}
