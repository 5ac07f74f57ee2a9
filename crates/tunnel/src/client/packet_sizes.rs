//! Probes which packet sizes pass a tunnel that lost most of its load: echo requests of sizes up to the tunnel's MTU,
//! a few at a time. A path that silently drops packets above its own MTU answers only the short ones. Has no side
//! effects.

/// Minimum packet size, bytes: the default of `ping`.
const SHORTEST: usize = 84;
const SIZES: usize = 16;
/// Number of requests of each size: one lost packet proves nothing.
pub const ROUNDS: usize = 2;
/// Sequence number of the first request; lower ones verify a tunnel or are pings.
const FIRST: u64 = 1 << 48;

/// The packet sizes on either side of a path's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSizes {
    /// The largest size that was answered, bytes.
    pub answered_bytes: u32,
    /// The next larger size, which was not answered, bytes.
    pub unanswered_bytes: u32,
}

/// A probe of all sizes.
#[derive(Debug)]
pub struct SizeProbe {
    mtu: usize,
    /// By index of the size.
    answered: [bool; SIZES],
}

impl SizeProbe {
    /// Creates a probe for a tunnel of this MTU.
    pub fn new(mtu: u16) -> Self {
        Self { mtu: usize::from(mtu).max(SHORTEST), answered: [false; SIZES] }
    }

    /// The sequence numbers and sizes of one round's requests. Sizes increase, so that segmentation offload never
    /// combines two requests: a virtual link passes such packets whatever its MTU.
    pub fn requests(&self, round: usize) -> impl Iterator<Item = (u64, usize)> + '_ {
        (0..SIZES).map(move |place| (FIRST + (round * SIZES + place) as u64, self.bytes(place)))
    }

    /// Handles a reply; returns whether it answers one of these requests.
    pub fn take(&mut self, number: u64) -> bool {
        let place = number.checked_sub(FIRST).and_then(|number| usize::try_from(number).ok());
        let place = place.filter(|place| *place < SIZES * ROUNDS);
        if let Some(place) = place {
            self.answered[place % SIZES] = true;
        }
        place.is_some()
    }

    /// Whether all requests are answered.
    pub fn is_over(&self) -> bool {
        self.answered.iter().all(|answered| *answered)
    }

    /// The largest answered size and the next larger one, if all smaller sizes are answered and all larger ones are
    /// not.
    pub fn result(&self) -> Option<PacketSizes> {
        let longest = self.answered.iter().take_while(|answered| **answered).count().checked_sub(1)?;
        let are_longer_lost = self.answered[longest + 1..].iter().all(|answered| !answered);
        (longest + 1 < SIZES && are_longer_lost).then(|| PacketSizes {
            answered_bytes: self.bytes(longest) as u32,
            unanswered_bytes: self.bytes(longest + 1) as u32,
        })
    }

    fn bytes(&self, place: usize) -> usize {
        SHORTEST + (self.mtu - SHORTEST) * place / (SIZES - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(mtu: u16, passes: impl Fn(usize) -> bool) -> Option<(u32, u32)> {
        let mut probe = SizeProbe::new(mtu);
        let requests = (0..ROUNDS).flat_map(|round| probe.requests(round));
        let answered: Vec<u64> = requests.filter(|(_, bytes)| passes(*bytes)).map(|(number, _)| number).collect();
        assert!(answered.iter().all(|number| probe.take(*number)));
        assert!(!probe.take(0) && !probe.take(1 << 32) && !probe.take(u64::MAX));
        assert_eq!(probe.is_over(), answered.len() == SIZES * ROUNDS);
        probe.result().map(|sizes| (sizes.answered_bytes, sizes.unanswered_bytes))
    }

    #[test]
    fn only_a_smaller_path_mtu_is_detected() {
        assert_eq!(result(1500, |bytes| bytes <= 1250), Some((1216, 1311)));
        assert_eq!(result(1500, |bytes| bytes < 1500), Some((1405, 1500)));
        assert_eq!(result(1500, |bytes| bytes == SHORTEST), Some((84, 178)));
        assert_eq!(result(1500, |_| true), None, "every size passes");
        assert_eq!(result(1500, |_| false), None, "no size passes");
        assert_eq!(result(1500, |bytes| bytes != 1311), None, "a single loss is not a limit");
        assert_eq!(result(68, |_| true), None, "there is only one size");
    }
}
