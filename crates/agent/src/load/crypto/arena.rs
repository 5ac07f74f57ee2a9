//! The memory of a measurement: payloads side by side, and the packets that are made of them. Owns both ends of a
//! tunnel's data channel. A lap covers all of this memory once; a piece of work may take several laps, or be a part
//! of one. The size of the memory keeps the cache from being hot all the time.

use leadline_tunnel::openvpn::data::{DataChannel, DataError, DataOptions};
use leadline_tunnel::openvpn::keys;
use leadline_tunnel::openvpn::role::Role;

/// The longest payload, bytes: the maximum of a packet of a TCP tunnel.
pub const LONGEST: u32 = 65_000;

/// Payloads side by side in memory.
pub struct Payloads {
    bytes: Vec<u8>,
    each: usize,
    /// The index of the next payload.
    next: usize,
}

impl Payloads {
    /// Returns as many payloads of `each` bytes as fit in `spread` bytes, at least one.
    pub fn new(each: usize, spread: usize) -> Self {
        Self::of(each, spread / each)
    }

    /// Returns `count` payloads of `each` bytes, at least one.
    fn of(each: usize, count: usize) -> Self {
        // The memory is written once: untouched memory is not allocated yet.
        Self { bytes: (0..count.max(1) * each).map(|index| index as u8).collect(), each, next: 0 }
    }

    /// Visits the next `count` payloads, from the first again after the last; returns how many.
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

/// The payloads and their packets.
pub struct Packets {
    options: DataOptions,
    client: DataChannel,
    server: DataChannel,
    payloads: Payloads,
    packets: Vec<u8>,
    /// Bytes of one packet; all have the same length.
    packet: usize,
    sealed: usize,
    opened: usize,
}

impl Packets {
    /// Returns as many packets as fit in `spread` bytes, each with a payload of `size` bytes, but at least `fewest`.
    /// The payloads have separate memory, which is smaller.
    pub fn new(options: &DataOptions, size: u32, spread: usize, fewest: usize) -> Result<Self, DataError> {
        let (client, server) = channels(options)?;
        let each = size as usize + client.overhead();
        let payloads = Payloads::of(size as usize, (spread / each).max(fewest));
        let mut packets = vec![1; payloads.count() * each];
        packets.clear();
        let mut made = Self { options: *options, client, server, payloads, packets, packet: 0, sealed: 0, opened: 0 };
        made.seal_piece(1)?;
        made.packet = made.packets.len();
        Ok(made)
    }

    /// Negotiates new keys if the old ones are nearly used up.
    pub fn renew_keys(&mut self) -> Result<(), DataError> {
        if self.client.exhausted() || self.server.exhausted() {
            (self.client, self.server) = channels(&self.options)?;
        }
        Ok(())
    }

    /// Seals `count` payloads, from the first again after the last, over the earlier packets; returns how many.
    pub fn seal_piece(&mut self, count: usize) -> Result<u64, DataError> {
        for _ in 0..count {
            if self.sealed == self.payloads.count() {
                self.begin_lap();
            }
            let (client, packets) = (&mut self.client, &mut self.packets);
            self.payloads.each_of(1, |payload| client.seal(payload, packets))?;
            self.sealed += 1;
        }
        Ok(count as u64)
    }

    /// Seals every payload; the packets can then be opened.
    pub fn seal_lap(&mut self) -> Result<(), DataError> {
        self.begin_lap();
        self.seal_piece(self.payloads.count()).map(drop)
    }

    /// Whether every packet of the lap has been opened.
    pub fn is_opened(&self) -> bool {
        self.opened == self.sealed
    }

    /// Opens up to `count` packets; returns how many.
    pub fn open_piece(&mut self, count: usize) -> Result<u64, DataError> {
        let count = count.min(self.sealed - self.opened);
        let start = self.opened * self.packet;
        for packet in self.packets[start..start + count * self.packet].chunks_exact_mut(self.packet) {
            std::hint::black_box(self.server.open(packet)?);
        }
        self.opened += count;
        Ok(count as u64)
    }

    fn begin_lap(&mut self) {
        self.packets.clear();
        (self.sealed, self.opened) = (0, 0);
        self.payloads.next = 0;
    }
}

fn channels(options: &DataOptions) -> Result<(DataChannel, DataChannel), DataError> {
    let keys = keys::from_exported(std::array::from_fn(|index| index as u8));
    Ok((DataChannel::new(&keys, Role::Client, 0, options)?, DataChannel::new(&keys, Role::Server, 0, options)?))
}

#[cfg(test)]
mod tests {
    use leadline_tunnel::openvpn::data::DataCipher;
    use leadline_tunnel::openvpn::digest::Digest;

    use super::*;

    #[test]
    fn laps_seal_and_open_every_payload_and_the_numbers_go_on() {
        for cipher in [DataCipher::Aes256Gcm, DataCipher::Aes128Cbc] {
            let options = DataOptions::new(cipher);
            let mut packets = Packets::new(&options, 100, 0, 10).unwrap();
            for lap in 0..3 {
                packets.renew_keys().unwrap();
                packets.seal_lap().unwrap();
                assert!(!packets.is_opened());
                assert_eq!([9, 9, 9].map(|count| packets.open_piece(count)), [Ok(9), Ok(1), Ok(0)]);
                assert!(packets.is_opened());
                // One packet was sealed first to measure its length.
                assert_eq!(packets.client.usage().sealed_packets, 1 + (lap + 1) * 10);
                assert_eq!(packets.server.usage().opened_packets, (lap + 1) * 10);
            }
        }
    }

    #[test]
    fn a_sealing_batch_is_complete_with_little_memory() {
        let mut packets = Packets::new(&DataOptions::new(DataCipher::Aes256Gcm), 1400, 2048, 1).unwrap();
        assert_eq!(packets.payloads.count(), 1);
        assert_eq!(packets.seal_piece(700), Ok(700));
        assert_eq!(packets.client.usage().sealed_packets, 701);
        assert_eq!(packets.packets.len(), packets.packet);
    }

    #[test]
    fn memory_stays_below_twice_the_spread() {
        const SPREAD: usize = 1 << 20;
        let options = DataOptions { digest: Some(Digest::Sha512), ..DataOptions::new(DataCipher::Aes256Cbc) };
        for size in [1, 64, 1400] {
            let packets = Packets::new(&options, size, SPREAD, 1).unwrap();
            let held = packets.packets.capacity() + packets.payloads.bytes.len();
            // Many small packets use all of it; their payloads use hardly any.
            assert!((SPREAD - 2 * 1400..=2 * SPREAD).contains(&held), "{size}: {held}");
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
