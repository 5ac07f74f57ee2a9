//! The memory that a measurement goes over: payloads side by side, and the packets that they become. Owns both ends of a tunnel's
//! data channel. A lap seals every payload once; as many laps as there are bytes keep the cache from being hot all the time.

use leadline_tunnel::openvpn::data::{DataChannel, DataError, DataOptions};
use leadline_tunnel::openvpn::keys;
use leadline_tunnel::openvpn::side::Side;

/// The longest payload, bytes: what a packet of a TCP tunnel can hold.
pub const LONGEST: u32 = 65_000;

/// Payloads side by side.
pub struct Payloads {
    bytes: Vec<u8>,
    each: usize,
    /// The next one that is gone over.
    next: usize,
}

impl Payloads {
    /// As many of `each` bytes as `spread` holds, at least one.
    pub fn new(each: usize, spread: usize) -> Self {
        let count = (spread / each).max(1);
        // Written once: memory that has not been touched is not there yet.
        Self { bytes: (0..count * each).map(|index| index as u8).collect(), each, next: 0 }
    }

    /// Go over the next `count`, from the first again after the last; says how many.
    pub fn each_of<E>(&mut self, count: usize, mut run: impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<u64, E> {
        for _ in 0..count {
            let start = self.next * self.each;
            run(&mut self.bytes[start..start + self.each])?;
            self.next = if start + 2 * self.each > self.bytes.len() { 0 } else { self.next + 1 };
        }
        Ok(count as u64)
    }

    fn count(&self) -> usize {
        self.bytes.len() / self.each
    }
}

/// Payloads and their packets.
pub struct Packets {
    options: DataOptions,
    client: DataChannel,
    server: DataChannel,
    payloads: Payloads,
    packets: Vec<u8>,
    /// Bytes of one packet; all are alike.
    packet: usize,
    sealed: usize,
    opened: usize,
}

impl Packets {
    /// Payloads of `size` bytes over `spread` bytes, and as much again for their packets.
    pub fn new(options: &DataOptions, size: u32, spread: usize) -> Result<Self, DataError> {
        let (client, server) = channels(options)?;
        let payloads = Payloads::new(size as usize, spread);
        let room = payloads.count() * (size as usize + client.overhead());
        let mut packets = vec![1; room];
        packets.clear();
        let mut made = Self { options: *options, client, server, payloads, packets, packet: 0, sealed: 0, opened: 0 };
        made.seal_piece(1)?;
        made.packet = made.packets.len();
        Ok(made)
    }

    /// Begin anew with the first payload; with new keys where the old ones are nearly used up.
    pub fn begin_lap(&mut self) -> Result<(), DataError> {
        if self.client.exhausted() || self.server.exhausted() {
            (self.client, self.server) = channels(&self.options)?;
        }
        self.packets.clear();
        (self.sealed, self.opened) = (0, 0);
        self.payloads.next = 0;
        Ok(())
    }

    /// Whether every payload of the lap is sealed.
    pub fn is_sealed(&self) -> bool {
        self.sealed == self.payloads.count()
    }

    /// Whether every packet of the lap is opened.
    pub fn is_opened(&self) -> bool {
        self.opened == self.sealed
    }

    /// Seal up to `count` payloads; says how many.
    pub fn seal_piece(&mut self, count: usize) -> Result<u64, DataError> {
        let count = count.min(self.payloads.count() - self.sealed);
        let (client, packets) = (&mut self.client, &mut self.packets);
        let sealed = self.payloads.each_of(count, |payload| client.seal(payload, packets))?;
        self.sealed += count;
        Ok(sealed)
    }

    /// Open up to `count` packets; says how many.
    pub fn open_piece(&mut self, count: usize) -> Result<u64, DataError> {
        let count = count.min(self.sealed - self.opened);
        let start = self.opened * self.packet;
        for packet in self.packets[start..start + count * self.packet].chunks_exact_mut(self.packet) {
            std::hint::black_box(self.server.open(packet)?);
        }
        self.opened += count;
        Ok(count as u64)
    }
}

fn channels(options: &DataOptions) -> Result<(DataChannel, DataChannel), DataError> {
    let keys = keys::from_exported(std::array::from_fn(|index| index as u8));
    Ok((DataChannel::new(&keys, Side::Client, 0, options)?, DataChannel::new(&keys, Side::Server, 0, options)?))
}

#[cfg(test)]
mod tests {
    use leadline_tunnel::openvpn::data::DataCipher;

    use super::*;

    #[test]
    fn laps_seal_and_open_every_payload_and_the_numbers_go_on() {
        for cipher in [DataCipher::Aes256Gcm, DataCipher::Aes128Cbc] {
            let options = DataOptions::new(cipher);
            let mut packets = Packets::new(&options, 100, 1_050).unwrap();
            for lap in 0..3 {
                packets.begin_lap().unwrap();
                assert_eq!(
                    [packets.seal_piece(7), packets.seal_piece(7), packets.seal_piece(7)],
                    [Ok(7), Ok(3), Ok(0)]
                );
                assert!(packets.is_sealed() && !packets.is_opened());
                assert_eq!([packets.open_piece(9), packets.open_piece(9)], [Ok(9), Ok(1)]);
                assert!(packets.is_opened());
                // One was sealed at first to see how long a packet is.
                assert_eq!(packets.client.usage().sealed_packets, 1 + (lap + 1) * 10);
                assert_eq!(packets.server.usage().opened_packets, (lap + 1) * 10);
            }
        }
    }

    #[test]
    fn one_payload_is_spread_over_no_memory() {
        let mut payloads = Payloads::new(64, 0);
        let mut seen = 0;
        let done = payloads.each_of(3, |payload| {
            seen += payload.len();
            Ok::<(), ()>(())
        });
        assert_eq!(done, Ok(3));
        assert_eq!(seen, 3 * 64);
    }
}
