//! What the senders of a worker send, and how: their bytes in memory or in a file in memory, and the system call.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;

use leadline_sys::tcp::{self, SharedBytes, ZerocopyCompletions};
use leadline_wire::SendMethod;

use crate::flows::payload::Payload;

/// A short file is repeated up to this length, so that a send is not as short as the file.
const LEAST_CONTENT_BYTES: usize = 1 << 20;
/// The longest file that is sent, bytes: it is kept in memory.
const LONGEST_FILE_BYTES: u64 = 1 << 30;

/// The bytes that senders send again and again.
pub enum Source {
    /// In this process's memory; each send copies.
    Memory(Vec<u8>),
    /// In a file in memory, which the kernel sends as it is.
    Shared(SharedBytes, SendMethod),
}

impl Source {
    /// Returns a block of the payload, or the content of a file.
    pub fn new(block_bytes: usize, payload: Payload, file: Option<&Path>, method: SendMethod) -> io::Result<Self> {
        let content = match file {
            Some(path) => read_file(path)?,
            None => {
                let mut block = vec![0; block_bytes];
                payload.fill(&mut block);
                block
            }
        };
        Ok(match method {
            SendMethod::Write => Self::Memory(content),
            SendMethod::Zerocopy | SendMethod::Sendfile => Self::Shared(SharedBytes::new(&content)?, method),
        })
    }

    /// Prepares a socket for this way of sending.
    pub fn prepare(&self, socket: &TcpStream) -> io::Result<()> {
        match self {
            Self::Shared(_, SendMethod::Zerocopy) => tcp::enable_zerocopy(socket),
            _ => Ok(()),
        }
    }

    /// Sends once, without waiting: at most `most` bytes, from the place that follows `position` sent bytes.
    pub fn send(&self, mut socket: &TcpStream, position: u64, most: usize, sends: &mut Sends) -> io::Result<usize> {
        let length = match self {
            Self::Memory(bytes) => bytes.len(),
            Self::Shared(bytes, _) => bytes.len(),
        };
        let from = (position % length as u64) as usize;
        let count = most.min(length - from);
        match self {
            Self::Memory(bytes) => socket.write(&bytes[from..from + count]),
            Self::Shared(bytes, SendMethod::Zerocopy) => {
                sends.collect(socket)?;
                let sent = bytes.send_zerocopy(socket, from, count);
                sends.or_fall_back(sent, || bytes.send_file(socket, from, count))
            }
            Self::Shared(bytes, _) => bytes.send_file(socket, from, count),
        }
    }
}

/// What became of a flow's sends by MSG_ZEROCOPY.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sends {
    completions: ZerocopyCompletions,
    /// Sends that went by sendfile instead.
    fallbacks: u64,
}

impl Sends {
    /// Reads the completions so far.
    pub fn collect(&mut self, socket: &TcpStream) -> io::Result<()> {
        let found = tcp::zerocopy_completions(socket)?;
        self.completions.sends += found.sends;
        self.completions.copied += found.copied;
        Ok(())
    }

    /// Returns what became of a send, after another way if there was no room for another completion: there is none until
    /// the kernel has sent some.
    fn or_fall_back(
        &mut self,
        sent: io::Result<usize>,
        other_way: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        match sent {
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                let sent = other_way()?;
                self.fallbacks += 1;
                Ok(sent)
            }
            result => result,
        }
    }

    /// Returns complete sends, and those that the kernel copied after all; `None` without any.
    pub fn counts(&self) -> Option<(u64, u64)> {
        (self.completions.sends > 0).then_some((self.completions.sends, self.completions.copied))
    }

    /// Returns the sends that went by sendfile because the kernel had no room for another completion; `None` without any
    /// send by MSG_ZEROCOPY or instead of it.
    pub fn fallbacks(&self) -> Option<u64> {
        (self.completions.sends + self.fallbacks > 0).then_some(self.fallbacks)
    }
}

/// Returns the content of a file, a short one repeated.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(LONGEST_FILE_BYTES + 1).read_to_end(&mut content)?;
    if content.is_empty() || content.len() as u64 > LONGEST_FILE_BYTES {
        let message = format!("{} must have at least 1 byte, and at most 1 GiB", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let times = LEAST_CONTENT_BYTES.div_ceil(content.len());
    Ok(if times > 1 { content.repeat(times) } else { content })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn content_is_sent_again_and_again_by_each_method() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for method in [SendMethod::Write, SendMethod::Sendfile, SendMethod::Zerocopy] {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut far = listener.accept().unwrap().0;
            let source = Source::new(10, Payload::Digits, None, method).unwrap();
            source.prepare(&near).unwrap();
            let (mut position, mut sends) = (0, Sends::default());
            while position < 25 {
                let most = (25 - position) as usize;
                position += source.send(&near, position, most, &mut sends).unwrap() as u64;
            }
            let mut arrived = [0; 25];
            far.read_exact(&mut arrived).unwrap();
            assert_eq!(&arrived, b"0123456789012345678901234", "{method:?}");
            while method == SendMethod::Zerocopy && sends.counts().is_none_or(|(sends, _)| sends < 3) {
                sends.collect(&near).unwrap();
            }
            // Loopback copies.
            assert_eq!(sends.counts(), (method == SendMethod::Zerocopy).then_some((3, 3)));
            assert_eq!(sends.fallbacks(), (method == SendMethod::Zerocopy).then_some(0));
        }
    }

    #[test]
    fn sends_without_room_for_a_completion_are_counted() {
        let mut sends = Sends::default();
        let refused = |number| Err(io::Error::from_raw_os_error(number));
        assert_eq!(sends.or_fall_back(Ok(5), || Ok(9)).unwrap(), 5);
        assert_eq!(sends.fallbacks(), None);
        assert_eq!(sends.or_fall_back(refused(libc::ENOBUFS), || Ok(9)).unwrap(), 9);
        assert!(sends.or_fall_back(refused(libc::ENOBUFS), || refused(libc::EAGAIN)).is_err());
        assert!(sends.or_fall_back(refused(libc::EPIPE), || Ok(9)).is_err());
        assert_eq!((sends.counts(), sends.fallbacks()), (None, Some(1)));
    }

    #[test]
    fn empty_file_is_refused() {
        assert!(read_file(Path::new("/dev/null")).is_err());
        assert!(read_file(Path::new("/no/such/file")).is_err());
    }
}
