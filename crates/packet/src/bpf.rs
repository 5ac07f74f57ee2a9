//! BPF programs as instructions: an assembler, and the programs that write frames and count them. Runs none of them.

mod assembler;
pub mod bucket;
pub mod generator;
pub mod receiver;

pub use assembler::{Assembler, Label, Width};
