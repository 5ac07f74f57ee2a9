//! The program that writes frames. The kernel runs it on one page after another, and each page goes out of the interface as
//! a frame. It writes all headers each time, as pages come back with what a router made of them.
//!
//! It shares one map's value with the agent: `Control`, its histogram of lateness, and a record per flow. One thread runs
//! it at a time.

use super::assembler::{call, Condition, Operation, Register};
use super::bucket::{self, HISTOGRAM_BYTES};
use super::{Assembler, Label, Width};
use crate::frame::{Image, SumPlace};
use crate::trailer::{Trailer, SEQUENCE_BITS};

/// Places of the shared value, in bytes, of 64-bit numbers.
pub mod control {
    /// Frames sent.
    pub const SENT: usize = 0;
    /// Frames that may still be sent.
    pub const LEFT: usize = 8;
    /// When the schedule begins, ns.
    pub const BEGIN_NS: usize = 16;
    /// When the next frame is due, from the schedule's begin on, in parts of a ns (`DUE_BITS`).
    pub const DUE: usize = 24;
    /// The next flow.
    pub const FLOW: usize = 32;
    /// The state of the random numbers.
    pub const RANDOM: usize = 40;
    /// Frames until the next one with a time.
    pub const UNSTAMPED: usize = 48;
    /// When the last frame was sent, ns, if the program reads the clock.
    pub const LAST_NS: usize = 56;
    /// The histogram of lateness.
    pub const LATE: usize = 64;
}

/// Parts of a ns in the schedule: steps are exact to 2^-12 ns, and it lasts for 52 days.
pub const DUE_BITS: u32 = 12;
/// Bytes in front of the records.
pub const CONTROL_BYTES: usize = control::LATE + HISTOGRAM_BYTES;

/// What of a record is in front of its image: the next number, the lowest bits of the flow in their place, the highest, and
/// the sum under the checksum of what stays the same.
const NEXT: usize = 0;
const LOW_FLOW: usize = 4;
const HIGH_FLOW: usize = 8;
const SUM: usize = 12;
const IMAGE: usize = 16;

const XDP_DROP: i32 = 1;
const TIME_ON_STACK: i16 = 8;
const DATA: Register = 6;
const CONTROL: Register = 8;
const RECORD: Register = 9;

/// How a frame's flow is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowOrder {
    /// One after another.
    InTurn,
    /// At random, all alike.
    Random,
    /// At random, from this map with a table of 2^20 flows.
    Table(i32),
}

/// What the program has to do.
#[derive(Clone, Copy, Debug)]
pub struct GeneratorProgram {
    /// The map that it shares.
    pub map: i32,
    /// The interface.
    pub interface: u32,
    /// Bytes of each frame.
    pub frame_bytes: usize,
    /// Bytes of headers.
    pub header_bytes: usize,
    /// The checksum of the content, if there is one.
    pub checksum: Option<SumPlace>,
    /// Flows.
    pub flows: u32,
    /// Their order.
    pub order: FlowOrder,
    /// The test.
    pub test_id: u32,
    /// Whether frames have room for a time.
    pub is_timed: bool,
    /// One frame in this many has its time, if there is room for it.
    pub stamp_every: u32,
    /// Time between two frames, in parts of a ns (`DUE_BITS`); `None` for no schedule.
    pub step: Option<u64>,
}

impl GeneratorProgram {
    /// Bytes of a record: a power of two.
    pub fn record_bytes(&self) -> usize {
        (IMAGE + self.header_bytes).next_power_of_two()
    }

    /// Bytes of the shared value.
    pub fn shared_bytes(&self) -> usize {
        CONTROL_BYTES + self.record_bytes() * self.flows as usize
    }

    /// Where a flow's record is within the shared value. `index` is the flow's place among those of this program.
    pub fn record_at(&self, index: u32) -> usize {
        CONTROL_BYTES + self.record_bytes() * index as usize
    }

    /// Writes a flow's record; its next number stays.
    pub fn write_record(&self, record: &mut [u8], flow: u32, image: &Image) {
        let trailer = Trailer { test_id: self.test_id, flow, sequence: 0, time_ns: None };
        record[LOW_FLOW..LOW_FLOW + 4].copy_from_slice(&(flow << SEQUENCE_BITS).to_ne_bytes());
        record[HIGH_FLOW..HIGH_FLOW + 4].copy_from_slice(&(flow >> 4).to_ne_bytes());
        let sum = u32::from(image.constant_sum(&trailer, self.is_timed).to_be());
        record[SUM..SUM + 4].copy_from_slice(&sum.to_ne_bytes());
        record[IMAGE..IMAGE + self.header_bytes].copy_from_slice(&image.bytes[..self.header_bytes]);
    }

    /// Returns how many frames of a flow were sent, up to 2^32, from where its record is.
    pub const fn next_at(record_at: usize) -> usize {
        record_at + NEXT
    }

    /// Returns the program.
    pub fn assemble(&self) -> Vec<u64> {
        let mut program = Assembler::new();
        let drop = program.label();
        // Registers: 6 the frame, 7 its end, 8 the control values, 9 the record.
        program.load(Width::Word, DATA, 1, 0);
        program.load(Width::Word, 7, 1, 4);
        program.copy(2, DATA);
        program.with(Operation::Add, 2, self.frame_bytes as i32);
        program.jump_if_register(Condition::Greater, 2, 7, drop);
        program.map_value(CONTROL, self.map, 0);
        if let Some(step) = self.step {
            self.wait_until_due(&mut program, step, drop);
        }
        self.choose_flow(&mut program, drop);
        if self.is_timed {
            self.read_clock(&mut program);
        }
        self.write_frame(&mut program);
        program.count(CONTROL, control::SENT, 1);
        program.with(Operation::Move, 1, self.interface as i32);
        program.with(Operation::Move, 2, 0);
        program.call(call::REDIRECT);
        program.exit();
        program.place(drop);
        program.with(Operation::Move, 0, XDP_DROP);
        program.exit();
        program.finish()
    }

    /// Drops the page unless a frame is due; counts how late it is.
    fn wait_until_due(&self, program: &mut Assembler, step: u64, drop: Label) {
        program.call(call::KTIME_GET_NS);
        program.store_stack(TIME_ON_STACK, 0);
        program.load(Width::Double, 1, CONTROL, control::BEGIN_NS);
        program.jump_if_register(Condition::Less, 0, 1, drop);
        program.with_register(Operation::Subtract, 0, 1);
        program.with(Operation::ShiftLeft, 0, DUE_BITS as i32);
        program.load(Width::Double, 2, CONTROL, control::DUE);
        program.jump_if_register(Condition::Less, 0, 2, drop);
        program.load(Width::Double, 3, CONTROL, control::LEFT);
        program.jump_if(Condition::Equal, 3, 0, drop);
        program.with(Operation::Subtract, 3, 1);
        program.store(Width::Double, CONTROL, control::LEFT, 3);
        program.with_register(Operation::Subtract, 0, 2);
        program.with(Operation::ShiftRight, 0, DUE_BITS as i32);
        program.set(3, step);
        program.with_register(Operation::Add, 2, 3);
        program.store(Width::Double, CONTROL, control::DUE, 2);
        program.load_stack(1, TIME_ON_STACK);
        program.store(Width::Double, CONTROL, control::LAST_NS, 1);
        program.map_value(3, self.map, control::LATE);
        bucket::count(program, 0, 3, 4, 5);
    }

    /// Leaves the address of the flow's record in register 9.
    fn choose_flow(&self, program: &mut Assembler, drop: Label) {
        let records = self.record_at(0);
        program.map_value(RECORD, self.map, records);
        if self.flows == 1 {
            return;
        }
        match self.order {
            FlowOrder::InTurn => {
                let on = program.label();
                program.load(Width::Double, 1, CONTROL, control::FLOW);
                program.jump_if(Condition::NotLess, 1, self.flows as i32, drop);
                program.copy(2, 1);
                program.with(Operation::Add, 2, 1);
                program.jump_if(Condition::Less, 2, self.flows as i32, on);
                program.with(Operation::Move, 2, 0);
                program.place(on);
                program.store(Width::Double, CONTROL, control::FLOW, 2);
            }
            FlowOrder::Random => {
                next_random(program);
                program.with(Operation::ShiftRight, 1, 32);
                program.with(Operation::Multiply, 1, self.flows as i32);
                program.with(Operation::ShiftRight, 1, 32);
                // Always true; for the kernel's verifier.
                program.jump_if(Condition::NotLess, 1, self.flows as i32, drop);
            }
            FlowOrder::Table(table) => {
                next_random(program);
                program.with(Operation::ShiftRight, 1, 44);
                program.with(Operation::ShiftLeft, 1, 2);
                program.map_value(2, table, 0);
                program.with_register(Operation::Add, 2, 1);
                program.load(Width::Word, 1, 2, 0);
                program.jump_if(Condition::NotLess, 1, self.flows as i32, drop);
            }
        }
        program.with(Operation::ShiftLeft, 1, self.record_bytes().ilog2() as i32);
        program.with_register(Operation::Add, RECORD, 1);
    }

    /// Leaves the frame's time, or 0, on the stack.
    fn read_clock(&self, program: &mut Assembler) {
        let done = program.label();
        if self.stamp_every != 1 {
            let stamped = program.label();
            program.load(Width::Double, 1, CONTROL, control::UNSTAMPED);
            program.jump_if(Condition::Equal, 1, 0, stamped);
            program.with(Operation::Subtract, 1, 1);
            program.store(Width::Double, CONTROL, control::UNSTAMPED, 1);
            program.with(Operation::Move, 0, 0);
            program.jump(done);
            program.place(stamped);
            program.set(1, u64::from(self.stamp_every.saturating_sub(1)));
            program.store(Width::Double, CONTROL, control::UNSTAMPED, 1);
        }
        if self.step.is_some() {
            program.load_stack(0, TIME_ON_STACK);
        } else {
            program.call(call::KTIME_GET_NS);
        }
        program.place(done);
        program.store_stack(TIME_ON_STACK, 0);
    }

    fn write_frame(&self, program: &mut Assembler) {
        let mut at = 0;
        while at < self.header_bytes {
            let width = Width::within(self.header_bytes - at);
            program.load(width, 1, RECORD, IMAGE + at);
            program.store(width, DATA, at, 1);
            at += width.bytes();
        }
        // Register 2: the number below the flow's lowest bits; register 4: the sum.
        program.load(Width::Word, 2, RECORD, NEXT);
        program.copy(3, 2);
        program.with(Operation::Add, 3, 1);
        program.store(Width::Word, RECORD, NEXT, 3);
        program.with(Operation::And, 2, (1 << SEQUENCE_BITS) - 1);
        program.load(Width::Word, 3, RECORD, LOW_FLOW);
        program.with_register(Operation::Or, 2, 3);
        program.load(Width::Word, 3, RECORD, HIGH_FLOW);
        let end = self.frame_bytes;
        program.store_constant(Width::Word, DATA, end - 10, self.test_id as i32);
        program.store(Width::Word, DATA, end - 6, 2);
        program.store(Width::Half, DATA, end - 2, 3);
        if self.is_timed {
            program.load_stack(5, TIME_ON_STACK);
            program.store(Width::Double, DATA, end - 18, 5);
        }
        if let Some(place) = self.checksum {
            self.write_checksum(program, place);
        }
    }

    fn write_checksum(&self, program: &mut Assembler, place: SumPlace) {
        if self.is_timed {
            program.copy(3, 5);
            program.with(Operation::ShiftRight, 3, 32);
            program.with_register(Operation::Add, 2, 3);
            program.with(Operation::ShiftLeft, 5, 32);
            program.with(Operation::ShiftRight, 5, 32);
            program.with_register(Operation::Add, 2, 5);
        }
        let trailer = if self.is_timed { 18 } else { 10 };
        if (self.frame_bytes - trailer - place.covers_from) % 2 == 1 {
            fold(program, 2, 3);
            swap_bytes(program, 2, 3);
        }
        program.load(Width::Word, 4, RECORD, SUM);
        program.with_register(Operation::Add, 2, 4);
        fold(program, 2, 3);
        program.with(Operation::ExclusiveOr, 2, 0xffff);
        if place.is_udp {
            let differs = program.label();
            program.jump_if(Condition::Differs, 2, 0, differs);
            program.with(Operation::Move, 2, 0xffff);
            program.place(differs);
        }
        program.store(Width::Half, DATA, place.at, 2);
    }
}

/// Leaves the next number of `flows::Random` in register 1.
fn next_random(program: &mut Assembler) {
    program.load(Width::Double, 1, CONTROL, control::RANDOM);
    for (shift, bits) in [(Operation::ShiftLeft, 13), (Operation::ShiftRight, 7), (Operation::ShiftLeft, 17)] {
        program.copy(2, 1);
        program.with(shift, 2, bits);
        program.with_register(Operation::ExclusiveOr, 1, 2);
    }
    program.store(Width::Double, CONTROL, control::RANDOM, 1);
}

/// Folds a sum below 2^36 to 16 bits.
fn fold(program: &mut Assembler, sum: Register, between: Register) {
    for _ in 0..3 {
        program.copy(between, sum);
        program.with(Operation::ShiftRight, between, 16);
        program.with(Operation::And, sum, 0xffff);
        program.with_register(Operation::Add, sum, between);
    }
}

/// Exchanges the bytes of 16 bits.
fn swap_bytes(program: &mut Assembler, value: Register, between: Register) {
    program.copy(between, value);
    program.with(Operation::ShiftRight, between, 8);
    program.with(Operation::And, value, 0xff);
    program.with(Operation::ShiftLeft, value, 8);
    program.with_register(Operation::Or, value, between);
}
