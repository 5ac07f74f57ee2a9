//! What a worker's loop asks of a kernel interface, so that the same loop runs over io_uring and over epoll. A backend owns
//! one thread's sockets, numbered as the worker numbers its connections; it knows nothing of HTTP.

use std::io;
use std::ops::Range;

pub use leadline_sys::ring::Completion;
use socket2::Socket;

/// One thread's sockets.
pub trait IoBackend: Send + 'static {
    /// Take up work on this thread; nothing else is called before.
    fn begin(&mut self) -> io::Result<()>;
    /// Own a socket whose connection is being made; `Writable` tells that this has ended.
    fn connect(&mut self, index: usize, socket: Socket) -> io::Result<()>;
    /// Receive on a socket that has been connected, with the kernel's stamps if it was asked for them, or say why it has
    /// not been connected.
    fn connected(&mut self, index: usize, stamped: bool) -> io::Result<()>;
    /// Send a piece of the payload. Says how many bytes the system takes at once; `Sent` tells of the others, and `NotSent`
    /// corrects a promise.
    fn send(&mut self, index: usize, piece: Range<usize>) -> io::Result<usize>;
    /// Send a copy of these bytes after all that was given before; says the same.
    fn send_copy(&mut self, index: usize, bytes: &[u8]) -> io::Result<usize>;
    /// Hand over what is queued, without waiting for anything.
    fn flush(&mut self) -> io::Result<()>;
    /// When the last of what was sent so far was handed to the kernel, ns; `None` while some of it is queued.
    fn handed_over_ns(&self) -> Option<u64>;
    /// Give a socket back. Nothing of it is told any more.
    fn detach(&mut self, index: usize) -> Option<Detached>;
    /// Wait until something has happened or `until_ns` has come.
    fn wait(&mut self, until_ns: u64) -> io::Result<()>;
    /// The next thing that happened: to which connection, when it was seen (ns), and what; `None` when the next `wait` is
    /// due.
    fn completion(&mut self) -> io::Result<Option<(usize, u64, Completion)>>;
    /// The bytes of the `Received` that `completion` gave last.
    fn received(&self) -> &[u8];
    /// When the kernel had the last of them, ns on the real-time clock, where it told.
    fn stamp_ns(&self) -> Option<u64>;
    /// For how long waits were spent awake with nothing to do, ns.
    fn spun_ns(&self) -> u64;
    /// A connection's socket.
    fn socket(&self, index: usize) -> Option<&Socket>;
    /// All sockets.
    fn sockets(&self) -> impl Iterator<Item = &Socket>;
}

/// A socket that its backend has given back.
pub struct Detached {
    /// The socket.
    pub socket: Socket,
    /// How many bytes of what `send` promised were not taken.
    pub unsent_bytes: usize,
    /// How many bytes of what it did not promise were taken, of which no `Sent` has told.
    pub taken_bytes: usize,
}
