//! The program that counts frames at the driver of an interface. It keeps the account of `account::FlowAccount` for each
//! flow, a count per length, and a histogram of delays; all but the flows' accounts for each CPU, as programs run on
//! several of them at once. Frames of one flow arrive at one CPU.

use leadline_wire::PktgenStreams;

use super::assembler::{call, Condition, Operation, Register};
use super::bucket::{self, HISTOGRAM_BYTES};
use super::{Assembler, Label, Width};
use crate::account::{FlowAccount, WINDOW};
use crate::frame::MAX_FRAME_LENGTH;
use crate::pktgen::header;
use crate::trailer::{FLOW_BITS, SEQUENCE_BITS};

/// Places of a CPU's block, in bytes, of 64-bit numbers.
pub mod block {
    /// Frames that are not of the test.
    pub const FOREIGN: usize = 0;
    /// Frames of flows without an account.
    pub const BEYOND: usize = 8;
    /// Frames sent back.
    pub const ECHOED: usize = 16;
    /// When the first frame arrived, ns.
    pub const FIRST_NS: usize = 24;
    /// When the last frame arrived, ns; only with delays.
    pub const LAST_NS: usize = 32;
    /// The start of the load, ns: delays of frames written before are kept apart. The agent writes it.
    pub const WARM_UNTIL_NS: usize = 40;
    /// Frames that claim to be from the future.
    pub const FROM_FUTURE: usize = 48;
    /// Frames by length, from 0 to `MAX_FRAME_LENGTH`.
    pub const LENGTHS: usize = 64;
    /// The histogram of delays of the warm-up.
    pub const WARM_UP: usize = LENGTHS + (super::MAX_FRAME_LENGTH as usize + 8) / 8 * 64;
    /// The histogram of delays.
    pub const DELAYS: usize = WARM_UP + super::HISTOGRAM_BYTES;
}

/// Bytes of a CPU's block.
pub const BLOCK_BYTES: usize = (block::DELAYS + HISTOGRAM_BYTES).next_multiple_of(64);
/// Bytes of a flow's account: its numbers in the order of `FlowAccount`.
pub const ACCOUNT_BYTES: usize = 64;

/// What becomes of a counted frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It ends.
    Drop,
    /// The host gets it.
    Pass,
    /// It returns to its sender.
    Echo,
}

const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;
const XDP_TX: i32 = 3;
const DATA: Register = 6;
const END: Register = 7;
const BLOCK: Register = 8;
const ACCOUNT: Register = 9;
const LENGTH_ON_STACK: i16 = 8;
const WORD_ON_STACK: i16 = 16;
const TIME_ON_STACK: i16 = 24;

/// What the program has to do.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverProgram {
    /// The map of the CPUs' blocks.
    pub blocks: i32,
    /// The CPUs that have one.
    pub cpus: u32,
    /// The map of the flows' accounts.
    pub accounts: i32,
    /// The flows that have one.
    pub flows: u32,
    /// The test.
    pub test_id: u32,
    /// The streams of pktgen, whose frames have its numbers instead of a test's.
    pub pktgen: Option<PktgenStreams>,
    /// What becomes of its frames.
    pub verdict: Verdict,
    /// Whether delays are measured.
    pub measures_delay: bool,
    /// By how much the generator's clock is ahead, ns.
    pub clock_ahead_ns: i64,
}

/// Reads a flow's account.
pub fn account_at(read: impl Fn(usize) -> u64, flow: u32) -> FlowAccount {
    let at = |number: usize| read(ACCOUNT_BYTES * flow as usize + 8 * number);
    FlowAccount { next: at(0), window: at(1), frames: at(2), duplicates: at(3), reordered: at(4), behind: at(5) }
}

const NEXT: usize = 0;
const SEEN: usize = 8;
const FRAMES: usize = 16;
const DUPLICATES: usize = 24;
const REORDERED: usize = 32;
const BEHIND: usize = 40;

impl ReceiverProgram {
    /// Returns the program.
    pub fn assemble(&self) -> Vec<u64> {
        let mut program = Assembler::new();
        let [pass, foreign, counted] = [program.label(), program.label(), program.label()];
        // Registers: 6 the frame, 7 its end, 8 this CPU's block, 9 the flow's account.
        program.load(Width::Word, DATA, 1, 0);
        program.load(Width::Word, END, 1, 4);
        self.find_block(&mut program, pass);
        match self.pktgen {
            Some(streams) => find_pktgen_header(&mut program, streams, foreign),
            None => self.find_trailer(&mut program, foreign),
        }
        self.count_length(&mut program);
        if self.measures_delay {
            self.count_delay(&mut program);
        } else {
            note_first(&mut program);
        }
        self.count_sequence(&mut program, counted);
        program.place(counted);
        self.finish(&mut program, pass);
        program.place(foreign);
        program.count(BLOCK, block::FOREIGN, 1);
        program.place(pass);
        program.with(Operation::Move, 0, XDP_PASS);
        program.exit();
        program.finish()
    }

    fn find_block(&self, program: &mut Assembler, pass: Label) {
        program.map_value(BLOCK, self.blocks, 0);
        if self.cpus > 1 {
            program.call(call::GET_SMP_PROCESSOR_ID);
            program.jump_if(Condition::NotLess, 0, self.cpus as i32, pass);
            program.with(Operation::Multiply, 0, BLOCK_BYTES as i32);
            program.with_register(Operation::Add, BLOCK, 0);
        }
    }

    /// Leaves the frame's length and its word of numbers on the stack and its flow in register 9; with delays its time too.
    fn find_trailer(&self, program: &mut Assembler, foreign: Label) {
        let trailer = if self.measures_delay { 18 } else { 10 };
        program.copy(2, END);
        program.with_register(Operation::Subtract, 2, DATA);
        program.jump_if(Condition::Greater, 2, MAX_FRAME_LENGTH as i32, foreign);
        program.store_stack(LENGTH_ON_STACK, 2);
        program.jump_if(Condition::Less, 2, trailer, foreign);
        program.with(Operation::Subtract, 2, trailer);
        program.with(Operation::And, 2, 0x3fff);
        program.copy(3, DATA);
        program.with_register(Operation::Add, 3, 2);
        program.copy(2, 3);
        program.with(Operation::Add, 2, trailer);
        program.jump_if_register(Condition::Greater, 2, END, foreign);
        let at = trailer as usize - 10;
        program.load(Width::Word, 1, 3, at);
        program.set(2, u64::from(self.test_id));
        program.jump_if_register(Condition::Differs, 1, 2, foreign);
        program.load(Width::Word, 1, 3, at + 4);
        program.store_stack(WORD_ON_STACK, 1);
        program.with(Operation::ShiftRight, 1, SEQUENCE_BITS as i32);
        program.load(Width::Half, ACCOUNT, 3, at + 8);
        program.with(Operation::ShiftLeft, ACCOUNT, FLOW_BITS as i32 - 16);
        program.with_register(Operation::Or, ACCOUNT, 1);
        if self.measures_delay {
            program.load(Width::Double, 1, 3, 0);
            program.store_stack(TIME_ON_STACK, 1);
        }
    }

    fn count_length(&self, program: &mut Assembler) {
        program.load_stack(1, LENGTH_ON_STACK);
        // Always within; for the kernel's verifier.
        program.with(Operation::And, 1, 0x3fff);
        let within = program.label();
        program.jump_if(Condition::Less, 1, MAX_FRAME_LENGTH as i32 + 1, within);
        program.with(Operation::Move, 1, 0);
        program.place(within);
        program.with(Operation::ShiftLeft, 1, 3);
        program.copy(2, BLOCK);
        program.with_register(Operation::Add, 2, 1);
        program.count(2, block::LENGTHS, 1);
    }

    fn count_delay(&self, program: &mut Assembler) {
        let [done, future, warm] = [program.label(), program.label(), program.label()];
        program.call(call::KTIME_GET_NS);
        program.store(Width::Double, BLOCK, block::LAST_NS, 0);
        let known = program.label();
        program.load(Width::Double, 1, BLOCK, block::FIRST_NS);
        program.jump_if(Condition::Differs, 1, 0, known);
        program.store(Width::Double, BLOCK, block::FIRST_NS, 0);
        program.place(known);
        program.load_stack(1, TIME_ON_STACK);
        program.jump_if(Condition::Equal, 1, 0, done);
        if self.clock_ahead_ns != 0 {
            program.set(2, self.clock_ahead_ns as u64);
            program.with_register(Operation::Subtract, 1, 2);
        }
        program.jump_if_register(Condition::Less, 0, 1, future);
        program.with_register(Operation::Subtract, 0, 1);
        program.load(Width::Double, 2, BLOCK, block::WARM_UNTIL_NS);
        program.copy(3, BLOCK);
        program.jump_if_register(Condition::Less, 1, 2, warm);
        program.with(Operation::Add, 3, (block::DELAYS - block::WARM_UP) as i32);
        program.place(warm);
        program.with(Operation::Add, 3, block::WARM_UP as i32);
        bucket::count(program, 0, 3, 4, 5);
        program.jump(done);
        program.place(future);
        program.count(BLOCK, block::FROM_FUTURE, 1);
        program.place(done);
    }

    /// As `FlowAccount::count`.
    fn count_sequence(&self, program: &mut Assembler, counted: Label) {
        let [within, late, duplicate, behind] = [program.label(), program.label(), program.label(), program.label()];
        program.jump_if(Condition::Less, ACCOUNT, self.flows as i32, within);
        program.count(BLOCK, block::BEYOND, 1);
        program.jump(counted);
        program.place(within);
        program.with(Operation::ShiftLeft, ACCOUNT, ACCOUNT_BYTES.ilog2() as i32);
        program.map_value(1, self.accounts, 0);
        program.with_register(Operation::Add, ACCOUNT, 1);
        program.count(ACCOUNT, FRAMES, 1);
        if self.pktgen.is_some_and(|streams| !streams.has_numbers) {
            program.jump(counted);
            return;
        }
        program.load_stack(1, WORD_ON_STACK);
        program.with(Operation::And, 1, (1 << SEQUENCE_BITS) - 1);
        program.load(Width::Double, 2, ACCOUNT, NEXT);
        program.load(Width::Double, 3, ACCOUNT, SEEN);
        // Register 1: how far the number is ahead of the expected one.
        program.with_register(Operation::Subtract, 1, 2);
        program.with(Operation::ShiftLeft, 1, 64 - SEQUENCE_BITS as i32);
        program.with(Operation::ShiftRightSigned, 1, 64 - SEQUENCE_BITS as i32);
        program.jump_if(Condition::LessSigned, 1, 0, late);
        let [far, on] = [program.label(), program.label()];
        program.with(Operation::Add, 1, 1);
        program.with_register(Operation::Add, 2, 1);
        program.store(Width::Double, ACCOUNT, NEXT, 2);
        program.jump_if(Condition::NotLess, 1, WINDOW as i32, far);
        program.with_register(Operation::ShiftLeft, 3, 1);
        program.with(Operation::Or, 3, 1);
        program.jump(on);
        program.place(far);
        program.with(Operation::Move, 3, 1);
        program.place(on);
        program.store(Width::Double, ACCOUNT, SEEN, 3);
        program.jump(counted);

        program.place(late);
        // Register 1: the number's place in the window; -1 - x is the complement of x.
        program.with(Operation::ExclusiveOr, 1, -1);
        program.jump_if(Condition::NotLess, 1, WINDOW as i32, behind);
        program.with(Operation::Move, 2, 1);
        program.with_register(Operation::ShiftLeft, 2, 1);
        program.copy(4, 3);
        program.with_register(Operation::And, 4, 2);
        program.jump_if(Condition::Differs, 4, 0, duplicate);
        program.with_register(Operation::Or, 3, 2);
        program.store(Width::Double, ACCOUNT, SEEN, 3);
        program.count(ACCOUNT, REORDERED, 1);
        program.jump(counted);
        program.place(duplicate);
        program.count(ACCOUNT, DUPLICATES, 1);
        program.jump(counted);
        program.place(behind);
        program.count(ACCOUNT, REORDERED, 1);
        program.count(ACCOUNT, BEHIND, 1);
        program.jump(counted);
    }

    fn finish(&self, program: &mut Assembler, pass: Label) {
        match self.verdict {
            Verdict::Drop => program.with(Operation::Move, 0, XDP_DROP),
            Verdict::Pass => program.with(Operation::Move, 0, XDP_PASS),
            Verdict::Echo => {
                turn_around(program, pass);
                program.count(BLOCK, block::ECHOED, 1);
                program.with(Operation::Move, 0, XDP_TX);
            }
        }
        program.exit();
    }
}

/// As `Trailer`, of a frame of pktgen: `Header::find`, and `Header::stream` in register 9.
fn find_pktgen_header(program: &mut Assembler, streams: PktgenStreams, foreign: Label) {
    let found = program.label();
    program.copy(2, END);
    program.with_register(Operation::Subtract, 2, DATA);
    program.jump_if(Condition::Greater, 2, MAX_FRAME_LENGTH as i32, foreign);
    program.store_stack(LENGTH_ON_STACK, 2);
    program.set(4, u64::from(header::MAGIC.to_be()));
    for at in (header::FIRST_AT..=header::LAST_AT).step_by(header::STEP) {
        let next = program.label();
        // Register 3: the source port, `PORT_BEFORE` bytes in front of the header.
        program.copy(3, DATA);
        program.with(Operation::Add, 3, (at - header::PORT_BEFORE) as i32);
        program.copy(2, 3);
        program.with(Operation::Add, 2, header::PORT_BEFORE as i32 + 8);
        program.jump_if_register(Condition::Greater, 2, END, foreign);
        program.load(Width::Word, 1, 3, header::PORT_BEFORE);
        program.jump_if_register(Condition::Differs, 1, 4, next);
        program.load(Width::Word, 1, 3, header::PORT_BEFORE + 4);
        program.load(Width::Half, ACCOUNT, 3, 0);
        program.jump(found);
        program.place(next);
    }
    program.jump(foreign);
    program.place(found);
    program.to_network_word(1);
    program.with(Operation::Subtract, 1, 1);
    program.store_stack(WORD_ON_STACK, 1);
    if streams.ports == 0 {
        program.with(Operation::Move, ACCOUNT, 0);
    } else {
        program.to_network_half(ACCOUNT);
        // A lower port becomes a number far beyond all flows.
        program.with(Operation::Subtract, ACCOUNT, i32::from(streams.first_port));
        program.with(Operation::Divide, ACCOUNT, i32::from(streams.ports));
    }
}

fn note_first(program: &mut Assembler) {
    let known = program.label();
    program.load(Width::Double, 1, BLOCK, block::FIRST_NS);
    program.jump_if(Condition::Differs, 1, 0, known);
    program.call(call::KTIME_GET_NS);
    program.store(Width::Double, BLOCK, block::FIRST_NS, 0);
    program.place(known);
}

const TYPE_V4: u16 = 0x0800;
const TYPE_V6: u16 = 0x86dd;
const TAGS: [u16; 2] = [0x8100, 0x88a8];

/// Exchanges the addresses and ports of a frame's outermost headers. Their checksums stay right: they do not depend on the
/// order of words. An echo request becomes a reply; other frames that have none of these headers pass.
fn turn_around(program: &mut Assembler, pass: Label) {
    let [v4, v6, ports, done, found] =
        [program.label(), program.label(), program.label(), program.label(), program.label()];
    let has_bytes = |program: &mut Assembler, from: Register, bytes: i32| {
        program.copy(1, from);
        program.with(Operation::Add, 1, bytes);
        program.jump_if_register(Condition::Greater, 1, END, pass);
    };
    has_bytes(program, DATA, 22);
    // Register 3: the header behind Ethernet's, or behind up to two tags.
    program.copy(3, DATA);
    program.with(Operation::Add, 3, 14);
    program.load(Width::Half, 4, DATA, 12);
    for at in [16, 20] {
        let tagged = program.label();
        for tag in TAGS {
            program.jump_if(Condition::Equal, 4, i32::from(tag.to_be()), tagged);
        }
        program.jump(found);
        program.place(tagged);
        program.load(Width::Half, 4, DATA, at);
        program.with(Operation::Add, 3, 4);
    }
    program.place(found);
    program.jump_if(Condition::Equal, 4, i32::from(TYPE_V4.to_be()), v4);
    program.jump_if(Condition::Equal, 4, i32::from(TYPE_V6.to_be()), v6);
    program.jump(pass);

    program.place(v4);
    has_bytes(program, 3, 28);
    exchange(program, 3, 12, 16, 4);
    program.load(Width::Byte, 4, 3, 9);
    program.load(Width::Byte, 5, 3, 0);
    program.jump_if(Condition::Differs, 5, 0x45, done);
    program.with(Operation::Add, 3, 20);
    program.jump(ports);

    program.place(v6);
    has_bytes(program, 3, 48);
    exchange(program, 3, 8, 24, 16);
    program.load(Width::Byte, 4, 3, 6);
    program.with(Operation::Add, 3, 40);

    program.place(ports);
    let [exchanged, echo] = [program.label(), program.label()];
    program.jump_if(Condition::Equal, 4, 6, exchanged);
    program.jump_if(Condition::Equal, 4, 17, exchanged);
    program.jump_if(Condition::Equal, 4, 1, echo);
    program.jump_if(Condition::Equal, 4, 58, echo);
    program.jump(done);
    program.place(exchanged);
    exchange(program, 3, 0, 2, 2);
    program.jump(done);

    program.place(echo);
    for (request, reply) in [(8, 0), (128, 129)] {
        let other = program.label();
        program.load(Width::Byte, 5, 3, 0);
        program.jump_if(Condition::Differs, 5, request, other);
        program.store_constant(Width::Byte, 3, 0, reply);
        // RFC 1624 with the word of type and code: the sum of ~old and new, in the network's order.
        program.load(Width::Half, 4, 3, 2);
        program.to_network_half(4);
        program.with(Operation::ExclusiveOr, 4, 0xffff);
        program.with(Operation::Add, 4, (0xffff - (request << 8)) + (reply << 8));
        for _ in 0..2 {
            program.copy(5, 4);
            program.with(Operation::ShiftRight, 5, 16);
            program.with(Operation::And, 4, 0xffff);
            program.with_register(Operation::Add, 4, 5);
        }
        program.with(Operation::ExclusiveOr, 4, 0xffff);
        program.to_network_half(4);
        program.store(Width::Half, 3, 2, 4);
        program.jump(done);
        program.place(other);
    }
    program.place(done);
    exchange(program, DATA, 0, 6, 6);
}

/// Exchanges bytes at two places behind a register; registers 4 and 5 are lost.
fn exchange(program: &mut Assembler, base: Register, first: usize, second: usize, bytes: usize) {
    let mut at = 0;
    while at < bytes {
        let width = Width::within(bytes - at);
        program.load(width, 4, base, first + at);
        program.load(width, 5, base, second + at);
        program.store(width, base, first + at, 5);
        program.store(width, base, second + at, 4);
        at += width.bytes();
    }
}
