//! What a worker's loop asks of a kernel interface, so that the same loop runs over io_uring and over epoll. A backend owns
//! one thread's sockets, numbered as the worker numbers its connections; it knows nothing of HTTP.

mod epoll;
mod uring;

use std::io;
use std::ops::Range;
use std::sync::Arc;

pub use leadline_sys::ring::Completion;
use leadline_sys::usage::cpus_online;
use socket2::Socket;

pub use self::epoll::EpollBackend;
pub use self::uring::UringBackend;

/// Name of the environment variable that forces an engine: for tests and comparisons.
const FORCED: &str = "LEADLINE_HTTP_ENGINE";

/// Waits of up to this long are spent awake, ns. Falling asleep, a timer, and waking up cost 12 µs of CPU time and the
/// same in lateness, more on virtual machines, whose hypervisor is asked for each: so sleeping spares next to nothing here.
const AWAKE_NS: u64 = 25_000;

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

/// How threads wait for their sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Completions.
    IoUring,
    /// Readiness.
    Epoll,
}

impl Engine {
    /// The name that a result has.
    pub fn name(self) -> &'static str {
        match self {
            Engine::IoUring => "io_uring",
            Engine::Epoll => "epoll",
        }
    }

    /// What the environment asks for, if it does.
    pub fn forced() -> Option<Self> {
        let name = std::env::var(FORCED).ok()?;
        [Engine::IoUring, Engine::Epoll].into_iter().find(|engine| engine.name() == name)
    }
}

/// The threads' backends.
pub enum IoBackends {
    /// By io_uring.
    IoUring(Vec<UringBackend>),
    /// By epoll, and why not by io_uring.
    Epoll(Vec<EpollBackend>, String),
}

impl IoBackends {
    /// A backend for each thread with so many connections: by io_uring where it is to be had for all of them, by epoll where
    /// it is missing or forbidden, or asked for.
    ///
    /// Short waits are spent awake where a CPU is left to whoever answers.
    pub fn new(payload: &Arc<[u8]>, connections: &[usize], forced: Option<Engine>) -> io::Result<Self> {
        let awake_ns = if connections.len() < cpus_online() { AWAKE_NS } else { 0 };
        let reason = match forced {
            Some(Engine::Epoll) => "epoll was asked for".to_owned(),
            _ => match connections.iter().map(|&count| UringBackend::new(payload, count, awake_ns)).collect() {
                Ok(rings) => return Ok(IoBackends::IoUring(rings)),
                Err(error) if forced.is_some() => return Err(error),
                Err(error) => why_not(&error),
            },
        };
        let backends = connections.iter().map(|&count| EpollBackend::new(payload, count, awake_ns));
        let backends = backends.collect::<io::Result<_>>()?;
        Ok(IoBackends::Epoll(backends, reason))
    }
}

/// What an error of setting io_uring up means and what would help.
fn why_not(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has no io_uring".to_owned(),
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here (kernel.io_uring_disabled, or a container's seccomp profile)".to_owned()
        }
        Some(libc::ENOMEM) => "io_uring was refused memory (the limit is `ulimit -l`)".to_owned(),
        Some(libc::EMFILE | libc::ENFILE) => "no descriptors are left for io_uring (`ulimit -n`)".to_owned(),
        _ => format!("io_uring could not be set up: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoll_takes_over_where_a_ring_is_not_to_be_had() {
        // More files than any ring may have.
        const TOO_MANY: usize = 2_000_000;
        let payload: Arc<[u8]> = b"GET / HTTP/1.1\r\n\r\n".as_slice().into();
        let Ok(IoBackends::Epoll(backends, reason)) = IoBackends::new(&payload, &[1, TOO_MANY], None) else {
            panic!("no epoll")
        };
        assert_eq!(backends.len(), 2);
        assert!(reason.contains("ulimit -n"), "{reason}");
        assert!(
            IoBackends::new(&payload, &[TOO_MANY], Some(Engine::IoUring)).is_err(),
            "what is forced is not replaced"
        );
        assert!(matches!(IoBackends::new(&payload, &[1], None), Ok(IoBackends::IoUring(_))));
    }

    #[test]
    fn each_refusal_has_its_words() {
        let words = |code| why_not(&io::Error::from_raw_os_error(code));
        assert!(words(libc::ENOSYS).contains("no io_uring"));
        assert!(words(libc::EPERM).contains("forbidden"));
        assert!(words(libc::ENOMEM).contains("ulimit -l"));
        assert!(words(libc::EMFILE).contains("ulimit -n"));
        assert!(words(libc::EIO).contains("set up"));
    }
}
