//! Readiness by epoll, with time-outs in ns, and a waker for a waiting thread.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock;

/// The events to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Data, or the end of the peer's stream.
    Read,
    /// Room to write.
    Write,
    /// Both.
    ReadWrite,
}

/// One ready source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token that it was added with.
    pub token: u64,
    /// A read will not block: data, end of stream, or an error.
    pub readable: bool,
    /// A write will not block, or returns an error.
    pub writable: bool,
}

/// Set once the kernel turned out to have no epoll_pwait2.
static LACKS_EPOLL_PWAIT2: AtomicBool = AtomicBool::new(false);

/// An epoll instance, level-triggered.
#[derive(Debug)]
pub struct Poll {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Poll {
    /// Creates a poll that reports at most `batch` sources at a time.
    pub fn new(batch: usize) -> io::Result<Self> {
        // SAFETY: a plain system call; a non-negative result is a descriptor that no other object owns.
        let epoll = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Self { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; batch.max(1)] })
    }

    /// Adds a descriptor. It leaves the poll when it is closed.
    pub fn add(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, source.as_fd(), token, interest)
    }

    /// Changes the events of a descriptor.
    pub fn modify(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, source.as_fd(), token, interest)
    }

    /// Removes a descriptor.
    pub fn remove(&self, source: impl AsFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, source.as_fd(), 0, Interest::Read)
    }

    /// Waits until a source is ready or `until_ns` (monotonic) has passed; `None` waits without limit. The slice is
    /// empty after a time-out or a signal.
    pub fn wait(&mut self, until_ns: Option<u64>) -> io::Result<impl Iterator<Item = Ready> + '_> {
        let timeout = until_ns.map(|until| {
            let remaining_ns = until.saturating_sub(clock::monotonic_ns());
            libc::timespec {
                tv_sec: (remaining_ns / 1_000_000_000) as libc::time_t,
                tv_nsec: (remaining_ns % 1_000_000_000) as libc::c_long,
            }
        });
        let count = match self.wait_for(timeout.as_ref()) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        Ok(self.events[..count].iter().map(|event| {
            let flags = event.events;
            let failed = flags & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0;
            Ready {
                token: event.u64,
                readable: failed || flags & (libc::EPOLLIN | libc::EPOLLRDHUP) as u32 != 0,
                writable: failed || flags & libc::EPOLLOUT as u32 != 0,
            }
        }))
    }

    fn wait_for(&mut self, timeout: Option<&libc::timespec>) -> io::Result<usize> {
        if !LACKS_EPOLL_PWAIT2.load(Ordering::Relaxed) {
            match self.wait_in_one_call(timeout) {
                // A filter of system calls that does not know this one may refuse it in place of calling it unknown.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                    LACKS_EPOLL_PWAIT2.store(true, Ordering::Relaxed);
                }
                done => return done,
            }
        }
        self.wait_in_two_calls(timeout)
    }

    fn wait_in_one_call(&mut self, timeout: Option<&libc::timespec>) -> io::Result<usize> {
        let timeout = timeout.map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: `events` has room for the given number of entries, `timeout` is null or outlives the call.
        // epoll_pwait2 (Linux 5.11) has no wrapper in every libc, hence the raw system call.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len() as libc::c_int,
                timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// Waits for the epoll instance itself, whose time-outs are in ns too, and then takes what is ready.
    fn wait_in_two_calls(&mut self, timeout: Option<&libc::timespec>) -> io::Result<usize> {
        let timeout = timeout.map_or(std::ptr::null(), std::ptr::from_ref);
        let mut epoll = libc::pollfd { fd: self.epoll.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live entry; `timeout` is null or outlives the call; no mask of signals is set.
        let is_ready = unsafe { libc::ppoll(&mut epoll, 1, timeout, std::ptr::null()) };
        if is_ready <= 0 {
            return usize::try_from(is_ready).map_err(|_| io::Error::last_os_error());
        }
        // SAFETY: `events` has room for the given number of entries.
        let count = unsafe {
            libc::epoll_wait(self.epoll.as_raw_fd(), self.events.as_mut_ptr(), self.events.len() as libc::c_int, 0)
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    fn control(&self, operation: i32, source: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        let flags = match interest {
            Interest::Read => libc::EPOLLIN | libc::EPOLLRDHUP,
            Interest::Write => libc::EPOLLOUT,
            Interest::ReadWrite => libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLOUT,
        };
        let mut event = libc::epoll_event { events: flags as u32, u64: token };
        // SAFETY: both descriptors are open for the length of the call, `event` is valid.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, source.as_raw_fd(), &mut event) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

/// Wakes a thread that waits in a `Poll`, from any other thread.
#[derive(Debug)]
pub struct Waker {
    event: OwnedFd,
}

impl Waker {
    /// Creates a waker, to be added to a poll with `Interest::Read`.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a plain system call; a non-negative result is a descriptor that no other object owns.
        let event = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Self { event })
    }

    /// Makes the poll return. The waker stays readable: it is a latch, used to end a loop.
    pub fn wake(&self) {
        let one = 1u64;
        // SAFETY: writes eight bytes from a live u64. It can only fail by overflow, and then the waker is readable
        // anyway.
        unsafe { libc::write(self.event.as_raw_fd(), std::ptr::from_ref(&one).cast(), 8) };
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn poll_reports_only_ready_sources() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let mut poll = Poll::new(8).unwrap();
        poll.add(&b, 7, Interest::Read).unwrap();
        assert_eq!(poll.wait(Some(clock::monotonic_ns())).unwrap().count(), 0);
        a.write_all(b"x").unwrap();
        let ready: Vec<_> = poll.wait(None).unwrap().collect();
        assert_eq!(ready, [Ready { token: 7, readable: true, writable: false }]);
    }

    #[test]
    fn wait_without_epoll_pwait2_finds_the_same() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let mut poll = Poll::new(8).unwrap();
        poll.add(&b, 7, Interest::Read).unwrap();
        let short = libc::timespec { tv_sec: 0, tv_nsec: 200_000 };
        let begin_ns = clock::monotonic_ns();
        assert_eq!(poll.wait_in_two_calls(Some(&short)).unwrap(), 0);
        assert!(clock::monotonic_ns() >= begin_ns + 200_000);
        a.write_all(b"x").unwrap();
        for timeout in [None, Some(&short)] {
            assert_eq!(poll.wait_in_two_calls(timeout).unwrap(), 1);
            assert_eq!({ poll.events[0].u64 }, 7);
        }
    }

    #[test]
    fn waker_ends_a_wait() {
        let waker = Waker::new().unwrap();
        let mut poll = Poll::new(8).unwrap();
        poll.add(&waker, 1, Interest::Read).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            assert_eq!(poll.wait(None).unwrap().next().map(|ready| ready.token), Some(1));
        });
    }
}
