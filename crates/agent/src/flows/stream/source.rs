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
                match bytes.send_zerocopy(socket, from, count) {
                    // There is no room for another completion until the kernel has sent some.
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => bytes.send_file(socket, from, count),
                    result => result,
                }
            }
            Self::Shared(bytes, _) => bytes.send_file(socket, from, count),
        }
    }
}

/// What became of a flow's sends by MSG_ZEROCOPY.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sends(ZerocopyCompletions);

impl Sends {
    /// Reads the completions so far.
    pub fn collect(&mut self, socket: &TcpStream) -> io::Result<()> {
        let found = tcp::zerocopy_completions(socket)?;
        self.0.sends += found.sends;
        self.0.copied += found.copied;
        Ok(())
    }

    /// Returns complete sends, and those that the kernel copied after all; `None` without any.
    pub fn counts(&self) -> Option<(u64, u64)> {
        (self.0.sends > 0).then_some((self.0.sends, self.0.copied))
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
        }
    }

    #[test]
    fn empty_file_is_refused() {
        assert!(read_file(Path::new("/dev/null")).is_err());
        assert!(read_file(Path::new("/no/such/file")).is_err());
    }
}
