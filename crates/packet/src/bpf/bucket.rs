//! The bucket of a duration in a histogram that a program keeps: the layout of `leadline_stats::Histogram`.

use super::assembler::{Condition, Operation, Register};
use super::Assembler;

/// Values below 2^11 ns have a bucket each; from there on every doubling has 2^10.
const DIGIT_BITS: i32 = 11;
const BLOCK_BITS: i32 = DIGIT_BITS - 1;
/// The last doubling ends beyond an hour.
const HIGHEST_BITS: i32 = 42;
/// Counts of a histogram, without the one of longer durations.
pub const BUCKETS: usize = 33 << BLOCK_BITS;
/// Bytes of a histogram: the count of longer durations, and behind it the counts.
pub const HISTOGRAM_BYTES: usize = (BUCKETS + 1) * 8;

/// Counts the duration (ns) in `value` in the histogram at `histogram`; both registers, `doublings` and `rest` are lost.
/// `histogram` points to `HISTOGRAM_BYTES` of a map's value.
pub fn count(program: &mut Assembler, value: Register, histogram: Register, doublings: Register, rest: Register) {
    let [longer, done] = [program.label(), program.label()];
    program.copy(rest, value);
    program.with(Operation::ShiftRight, rest, HIGHEST_BITS);
    program.jump_if(Condition::Differs, rest, 0, longer);
    // The doublings are how far the value, at least 2^11 - 1, has to be shifted to fit in 11 bits.
    program.copy(rest, value);
    program.with(Operation::ShiftRight, rest, DIGIT_BITS);
    program.with(Operation::Move, doublings, 0);
    for step in [16, 8, 4, 2, 1] {
        let smaller = program.label();
        program.jump_if(Condition::Less, rest, 1 << step, smaller);
        program.with(Operation::ShiftRight, rest, step);
        program.with(Operation::Add, doublings, step);
        program.place(smaller);
    }
    // What is left of `rest` is 0, or 1 where its highest bit was left.
    let whole = program.label();
    program.jump_if(Condition::Equal, rest, 0, whole);
    program.with(Operation::Add, doublings, 1);
    program.place(whole);
    program.with_register(Operation::ShiftRight, value, doublings);
    program.with(Operation::ShiftLeft, doublings, BLOCK_BITS);
    program.with_register(Operation::Add, value, doublings);
    // Always true; for the kernel's verifier.
    program.jump_if(Condition::NotLess, value, BUCKETS as i32, longer);
    program.with(Operation::ShiftLeft, value, 3);
    program.with_register(Operation::Add, histogram, value);
    program.count(histogram, 8, rest);
    program.jump(done);
    program.place(longer);
    program.count(histogram, 0, rest);
    program.place(done);
}
