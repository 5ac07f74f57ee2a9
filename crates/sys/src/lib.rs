//! The interface to the system: clocks, polling, sockets, TUN, processes. The only crate with `unsafe`; each use
//! states why it is sound. Thin: no protocol, no policy.

pub mod bpf;
pub mod clock;
pub mod connect;
pub mod frames;
pub mod host;
pub mod interfaces;
pub mod links;
pub mod lua;
pub mod memory;
pub mod net;
mod netlink;
mod pinned;
pub mod poll;
pub mod ports;
pub mod priority;
pub mod process;
pub mod queues;
pub mod reason;
pub mod ring;
pub mod segments;
pub mod shared;
mod socket_option;
pub mod tcp;
pub mod tun;

pub mod usage;
pub mod xdp_outlet;
