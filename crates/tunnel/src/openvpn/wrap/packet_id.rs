//! The ids of protected packets: which one is next, and which were received, so that a replay is refused.

/// A protected packet's id: counted from the time of the sender's first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketId {
    pub id: u32,
    pub unix_s: u32,
}

impl PacketId {
    pub const LEN: usize = 8;

    pub fn bytes(self) -> [u8; Self::LEN] {
        (u64::from(self.id) << 32 | u64::from(self.unix_s)).to_be_bytes()
    }

    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let [a, b, c, d, time @ ..] = bytes;
        Self { id: u32::from_be_bytes([a, b, c, d]), unix_s: u32::from_be_bytes(time) }
    }

    /// The id after `last`, which is updated; the first one follows `start`.
    pub fn after(last: &mut Option<Self>, start: u32, unix_s: u32) -> Self {
        let Self { id, unix_s: began_s } = last.unwrap_or(Self { id: start, unix_s });
        let next = match id.checked_add(1) {
            Some(id) => Self { id, unix_s: began_s },
            // An id is never used twice: counting restarts with a later time.
            None => Self { id: 1, unix_s: unix_s.max(began_s.saturating_add(1)) },
        };
        *last = Some(next);
        next
    }
}

/// Received ids: a window of 64 below the highest one of the latest time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReplayWindow {
    unix_s: u32,
    highest: u32,
    /// Bit n: `highest` - n was received.
    received: u64,
}

impl ReplayWindow {
    /// Records an id. Returns false if it was received before, or is too old to be checked.
    pub fn take(&mut self, PacketId { id, unix_s }: PacketId) -> bool {
        if id == 0 || unix_s < self.unix_s {
            return false;
        }
        if unix_s > self.unix_s {
            *self = Self { unix_s, highest: id, received: 1 };
            return true;
        }
        if id > self.highest {
            self.received = self.received.checked_shl(id - self.highest).unwrap_or(0) | 1;
            self.highest = id;
            return true;
        }
        let bit = 1u64.checked_shl(self.highest - id).unwrap_or(0);
        let is_new = bit != 0 && self.received & bit == 0;
        self.received |= bit;
        is_new
    }
}
