//! Closes a load's last connections in such a way that both sides have counted the same requests. Nothing is measured
//! here: the load's time is over.

use std::io::{self, Read};
use std::net::Shutdown;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::{Interest, Poll};
use socket2::Socket;

/// How long responses are still read after the end, ns. Closing at once would reset requests that the server has not
/// read.
const SETTLE_NS: u64 = 1_000_000_000;
/// Ready connections per wait.
const BATCH: usize = 512;
/// The maximum that one read takes, bytes.
const BUFFER_BYTES: usize = 64 * 1024;

/// Closes connections with outstanding responses: ends the sending side, then reads until the server closes. Closing
/// with unread responses would reset the connection, and requests that the server has not read would be counted here
/// and not there.
pub fn settle(outstanding: Vec<Socket>) -> io::Result<()> {
    if outstanding.is_empty() {
        return Ok(());
    }
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut poll = Poll::new(BATCH)?;
    let mut open: Vec<Option<Socket>> = Vec::with_capacity(outstanding.len());
    for (index, socket) in outstanding.into_iter().enumerate() {
        // This fails only if the connection is gone, which the first read reports.
        let _ = socket.shutdown(Shutdown::Write);
        poll.add(&socket, index as u64, Interest::Read)?;
        open.push(Some(socket));
    }
    let deadline_ns = monotonic_ns() + SETTLE_NS;
    while open.iter().any(Option::is_some) && monotonic_ns() < deadline_ns {
        for ready in poll.wait(Some(deadline_ns))? {
            let slot = &mut open[ready.token as usize];
            let Some(socket) = slot else { continue };
            match socket.read(&mut buffer) {
                Ok(read) if read > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => *slot = None,
            }
        }
    }
    Ok(())
}
