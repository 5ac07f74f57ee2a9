//! The world's edge: clocks, polling, sockets, TUN, processes. The only crate with `unsafe`, and each use says why it holds.
//! Thin: no protocol, no policy.

pub mod tun;
