//! Ethernet frames for the packet engine: their layout, the programs that write and count them, and captures. Owns
//! formats and arithmetic; opens no file or socket and reads no clock.

pub mod account;
pub mod bpf;
pub mod capture;
mod checksum;
pub mod flows;
pub mod frame;
pub mod pktgen;
pub mod trailer;
