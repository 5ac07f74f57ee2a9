//! Opens a load's connections before its start, many at once. Owns no retries: what is not up when the start comes is
//! opened by its worker.

use std::io;
use std::net::TcpStream;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::connect::{begin, Remote, TcpOptions};
use leadline_sys::poll::{Interest, Poll};

use super::worker::Plan;

/// A connection and how long it took to open, ns; or why there is none.
pub type Opened = io::Result<(TcpStream, u64)>;

/// How long all connections together may take, ns.
const LONGEST_NS: u64 = 8_000_000_000;
/// Connections under way at once: a listener's backlog is not to be overrun.
const AT_ONCE: usize = 128;

struct UnderWay {
    socket: TcpStream,
    slot: usize,
    since_ns: u64,
}

/// Open `count` connections. An error of a single one is in its place; the function's own is the poll's.
pub fn open_all(plan: &Plan, count: u32) -> io::Result<Vec<Opened>> {
    let mut poll = Poll::new(AT_ONCE)?;
    let mut opened: Vec<Opened> = (0..count).map(|_| Err(io::ErrorKind::TimedOut.into())).collect();
    let mut under_way: Vec<Option<UnderWay>> = (0..AT_ONCE).map(|_| None).collect();
    let deadline_ns = monotonic_ns() + LONGEST_NS;
    let mut begun = 0;
    loop {
        for (place, entry) in under_way.iter_mut().enumerate() {
            while entry.is_none() && begun < opened.len() {
                let since_ns = monotonic_ns();
                match connect(plan) {
                    Ok(socket) => {
                        poll.add(&socket, place as u64, Interest::Write)?;
                        *entry = Some(UnderWay { socket, slot: begun, since_ns });
                    }
                    Err(error) => opened[begun] = Err(error),
                }
                begun += 1;
            }
        }
        if under_way.iter().all(Option::is_none) || monotonic_ns() >= deadline_ns {
            return Ok(opened);
        }
        for ready in poll.wait(Some(deadline_ns))? {
            if let Some(UnderWay { socket, slot, since_ns }) = under_way[ready.token as usize].take() {
                opened[slot] = match socket.take_error()? {
                    None => Ok((socket, monotonic_ns() - since_ns)),
                    Some(error) => Err(error),
                };
            }
        }
    }
}

/// Begin one.
pub fn connect(plan: &Plan) -> io::Result<TcpStream> {
    begin(&Remote::Inet(plan.address), plan.bind, &TcpOptions::default()).map(TcpStream::from)
}
