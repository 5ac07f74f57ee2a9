//! When a client's keys are replaced: because of their age, their traffic, or their end. Owns the counting; it runs
//! for every data packet, so it only adds and compares. `client` negotiates.

use crate::openvpn::config::{ClientConfig, KeyLimits};
use crate::timer::earlier;

/// Pause after a failed renewal, ns.
const PAUSE_NS: u64 = 10_000_000_000;

/// Age and traffic of the newest keys.
pub struct Renewal {
    /// The age at which keys are replaced, ns; `None`: at no age.
    after_ns: Option<u64>,
    limits: KeyLimits,
    bytes: u64,
    packets: u64,
    /// When to negotiate, ns; `None` before the first keys, and while neither their age nor their traffic requires it. Not before
    /// `not_before_ns`; with the same keys it moves to earlier times only.
    due_ns: Option<u64>,
    /// Set from the beginning of a negotiation until its keys are in use.
    not_before_ns: Option<u64>,
}

impl Renewal {
    /// The state before the first keys.
    pub fn new(config: &ClientConfig) -> Self {
        let limits = config.renegotiate_after;
        Self { after_ns: config.renegotiate_after_ns, limits, bytes: 0, packets: 0, due_ns: None, not_before_ns: None }
    }

    /// Records that new keys are in use.
    pub fn installed(&mut self, now_ns: u64) {
        (self.bytes, self.packets, self.not_before_ns) = (0, 0, None);
        self.due_ns = self.after_ns.map(|after_ns| now_ns.saturating_add(after_ns));
    }

    /// Counts a payload in either direction; `is_ending`: the keys will not carry many more.
    #[inline]
    pub fn carried(&mut self, now_ns: u64, bytes: usize, is_ending: bool) {
        self.bytes += bytes as u64;
        self.packets += 1;
        let is_worn = self.limits.bytes.is_some_and(|most| self.bytes >= most)
            || self.limits.packets.is_some_and(|most| self.packets >= most);
        if is_worn || is_ending {
            self.due_ns = earlier(self.due_ns, Some(self.not_before_ns.map_or(now_ns, |at_ns| at_ns.max(now_ns))));
        }
    }

    /// Records that a negotiation has begun.
    pub fn begun(&mut self, now_ns: u64) {
        self.not_before_ns = Some(now_ns.saturating_add(PAUSE_NS));
        self.due_ns = self.not_before_ns;
    }

    /// When to negotiate, ns; `None` means not automatically.
    pub fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }
}

#[cfg(test)]
mod tests {
    use leadline_tls::TemporaryAuthority;

    use super::*;
    use crate::openvpn::profile;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn exhausting_keys_are_renewed_before_their_age_limit() {
        let ca = TemporaryAuthority::new().expect("a certificate").certificate_pem;
        let text = format!("client\nremote vpn.example.net\nreneg-sec 3600\n<ca>\n{ca}</ca>\n");
        let config = ClientConfig::new(&profile::parse(&text).expect("a profile"), 0).expect("it can be obeyed");
        assert_eq!(config.renegotiate_after_ns, Some(3600 * SECOND_NS));
        let mut renewal = Renewal::new(&config);
        assert_eq!(renewal.due_ns(), None);
        renewal.installed(SECOND_NS);
        renewal.carried(2 * SECOND_NS, 100, false);
        assert_eq!(renewal.due_ns(), Some(3601 * SECOND_NS));
        renewal.carried(3 * SECOND_NS, 100, true);
        assert_eq!(renewal.due_ns(), Some(3 * SECOND_NS));
        // A failed attempt is not repeated with each packet.
        renewal.begun(4 * SECOND_NS);
        renewal.carried(5 * SECOND_NS, 100, true);
        assert_eq!(renewal.due_ns(), Some(14 * SECOND_NS));
        renewal.installed(6 * SECOND_NS);
        assert_eq!(renewal.due_ns(), Some(3606 * SECOND_NS));
    }
}
