//! What connected clients do when they are told to: negotiate new keys, or leave without a word and come anew. Owns what is
//! counted of it; whose turn it is, `deeds` says.

use leadline_sys::clock::monotonic_ns;
use leadline_wire::TunnelDeed;

use super::member::{Occasion, Phase};
use super::worker::Worker;

impl Worker {
    /// A connected client is to do something.
    pub fn act(&mut self, index: usize, due_ns: u64, deed: TunnelDeed) {
        let Some(member) = self.members.get_mut(index) else { return };
        let is_renewing = deed == TunnelDeed::Renegotiate && member.renewal_due_ns.is_some();
        if !member.phase.is_up() || is_renewing {
            self.tally.deeds_skipped += 1;
            return;
        }
        match deed {
            TunnelDeed::Renegotiate => {
                let Some(machine) = &mut member.machine else { return };
                machine.renegotiate(monotonic_ns());
                member.renewal_due_ns = Some(due_ns);
                self.renewals += 1;
                self.tally.renewals_asked += 1;
                self.drive(index);
            }
            TunnelDeed::Reconnect => self.reconnect(index, due_ns),
        }
    }

    /// From the same address and without a word, by a new socket: a client that is started anew has no port of its own
    /// (`nobind`), and to the server it is another one.
    fn reconnect(&mut self, index: usize, due_ns: u64) {
        self.end_tunnel(index);
        if let Some(link) = self.close(index) {
            link.drop_silently();
        }
        self.enter(index, Phase::Resting);
        self.begin(index, due_ns, Occasion::Reconnect);
    }
}
