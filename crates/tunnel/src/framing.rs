//! Packets in a TCP stream: each follows its length in two bytes. Owns the bytes of an incomplete packet.

/// Maximum length of a packet in a stream, bytes: enough for the largest usual MTU. A peer that announces a longer
/// one is broken or hostile.
pub const MAX_PACKET_BYTES: usize = 65_535;

/// Splits a stream into packets.
#[derive(Debug, Default)]
pub struct Unframer {
    held: Vec<u8>,
}

/// The error of a stream that announces an empty packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packet of no bytes in the stream")]
pub struct EmptyPacket;

impl Unframer {
    /// Reads the stream's next bytes and passes each complete packet to `each`, in order. Keeps the rest, which is
    /// less than one packet; keeps and copies nothing if the bytes end with a packet.
    ///
    /// # Errors
    /// The stream is invalid and cannot be read any further.
    pub fn take(&mut self, bytes: &mut [u8], mut each: impl FnMut(&mut [u8])) -> Result<(), EmptyPacket> {
        if self.held.is_empty() {
            let used = whole_packets(bytes, &mut each)?;
            self.held.extend_from_slice(&bytes[used..]);
            return Ok(());
        }
        self.held.extend_from_slice(bytes);
        let used = whole_packets(&mut self.held, &mut each)?;
        self.held.drain(..used);
        if self.held.is_empty() {
            // Thousands of idle clients keep no buffer.
            self.held = Vec::new();
        }
        Ok(())
    }
}

/// Writes the length before a packet that begins at `start` of `out`, where two bytes are reserved for it.
///
/// # Panics
/// If the packet is longer than `MAX_PACKET_BYTES`, which no sealed packet is.
pub fn set_length(out: &mut [u8], start: usize) {
    let length = u16::try_from(out.len() - start - 2).expect("a sealed packet fits its length");
    out[start..start + 2].copy_from_slice(&length.to_be_bytes());
}

fn whole_packets(bytes: &mut [u8], each: &mut impl FnMut(&mut [u8])) -> Result<usize, EmptyPacket> {
    let mut at = 0;
    while let Some([high, low]) = bytes.get(at..at + 2) {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if length == 0 {
            return Err(EmptyPacket);
        }
        let Some(packet) = bytes.get_mut(at + 2..at + 2 + length) else { break };
        each(packet);
        at += 2 + length;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(packets: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for packet in packets {
            let start = out.len();
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(packet);
            set_length(&mut out, start);
        }
        out
    }

    #[test]
    fn stream_is_unframed_at_any_split() {
        let packets: [&[u8]; 4] = [b"a", b"bcd", &[7; 300], b"e"];
        let stream = framed(&packets);
        for piece in 1..stream.len() {
            let mut unframer = Unframer::default();
            let mut unframed: Vec<Vec<u8>> = Vec::new();
            for chunk in stream.chunks(piece) {
                unframer.take(&mut chunk.to_vec(), |packet| unframed.push(packet.to_vec())).expect("a valid stream");
            }
            assert_eq!(unframed, packets, "pieces of {piece}");
            assert_eq!(unframer.held.capacity(), 0);
        }
    }

    #[test]
    fn empty_packet_is_a_stream_error() {
        assert_eq!(Unframer::default().take(&mut [0, 0, 1], |_| {}), Err(EmptyPacket));
    }
}
