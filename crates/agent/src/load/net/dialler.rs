//! Begins the TCP connections of a load. Owns the choice of each connection's local address.

use std::io;
use std::net::IpAddr;

use leadline_sys::connect::{self, Remote, TcpOptions};
use leadline_wire::{ErrorReport, SocketOptions};
use socket2::Socket;

use super::options::tcp_options;
use crate::load::session::parse_bind;

/// How the connections of a load begin.
pub struct Dialler {
    /// Local addresses, which connections use in turn; the system's choice if empty.
    binds: Vec<IpAddr>,
    options: TcpOptions,
}

impl Dialler {
    /// Checks local addresses and the options of sockets.
    pub fn new(binds: &[String], options: &SocketOptions) -> Result<Self, ErrorReport> {
        let binds = binds.iter().map(|text| parse_bind(Some(text))).filter_map(Result::transpose);
        Ok(Self { binds: binds.collect::<Result<_, _>>()?, options: tcp_options(options)? })
    }

    /// Begins to connect; `turn` counts the connections of a thread.
    pub fn begin(&self, remote: &Remote, turn: &mut usize) -> io::Result<Socket> {
        let from = (!self.binds.is_empty()).then(|| self.binds[*turn % self.binds.len()]);
        *turn = turn.wrapping_add(1);
        connect::begin(remote, from, &self.options)
    }
}
