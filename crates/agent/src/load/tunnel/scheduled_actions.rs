//! The schedule of a fleet's actions for the clients of one thread: each action goes from client to client in the
//! order of their numbers, at even steps. The client's machine performs the action.

use leadline_wire::{TunnelAction, TunnelActionKind};

/// When each of a thread's clients performs each action.
pub struct ActionSchedule {
    actions: Vec<(TunnelAction, Cursor)>,
    clients: u32,
    step: u32,
}

/// The next client of an action.
#[derive(Clone, Copy)]
struct Cursor {
    client: u32,
}

impl ActionSchedule {
    /// Returns the schedule for the clients `first`, `first + step` ... of all.
    pub fn new(actions: &[TunnelAction], clients: u32, first: u32, step: u32) -> Self {
        Self { actions: actions.iter().map(|action| (*action, Cursor { client: first })).collect(), clients, step }
    }

    /// When the next action is due, ns after the arrivals began; `None` if none is left.
    pub fn next_ns(&self) -> Option<u64> {
        self.due_times().map(|(due_ns, _)| due_ns).min()
    }

    /// Removes and returns the next due action: when it was due, its client, and its kind.
    pub fn take(&mut self, elapsed_ns: u64) -> Option<(u64, u32, TunnelActionKind)> {
        let (due_ns, index) = self.due_times().min()?;
        if due_ns > elapsed_ns {
            return None;
        }
        let (action, cursor) = &mut self.actions[index];
        let client = cursor.client;
        cursor.client = client.saturating_add(self.step);
        Some((due_ns, client, action.what))
    }

    fn due_times(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        let clients = u64::from(self.clients.max(1));
        let pending = self.actions.iter().enumerate().filter(|(_, (_, cursor))| cursor.client < self.clients);
        pending.map(move |(index, (action, cursor))| {
            let share = u128::from(action.over_ms) * 1_000_000 * u128::from(cursor.client) / u128::from(clients);
            let share = u64::try_from(share).unwrap_or(u64::MAX);
            (action.at_ms.saturating_mul(1_000_000).saturating_add(share), index)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_action_reaches_every_client_once_in_order() {
        let action = |at_ms, over_ms, what| TunnelAction { at_ms, what, over_ms };
        let actions = [action(10, 8, TunnelActionKind::Renegotiate), action(12, 0, TunnelActionKind::Reconnect)];
        let mut taken = Vec::new();
        for first in 0..2 {
            let mut schedule = ActionSchedule::new(&actions, 8, first, 2);
            assert_eq!(schedule.take(0), None);
            while let Some(due_ns) = schedule.next_ns() {
                assert_eq!(schedule.take(due_ns - 1), None);
                taken.push(schedule.take(due_ns).unwrap());
            }
        }
        taken.sort_by_key(|(due_ns, client, _)| (*due_ns, *client));
        let ms = |(due_ns, client, what): (u64, u32, TunnelActionKind)| (due_ns / 1_000_000, client, what);
        let renewed = (0..8).map(|client| (10 + u64::from(client), client, TunnelActionKind::Renegotiate));
        let moved = (0..8).map(|client| (12, client, TunnelActionKind::Reconnect));
        let mut expected: Vec<_> = renewed.chain(moved).collect();
        expected.sort_by_key(|(due_ms, client, _)| (*due_ms, *client));
        assert_eq!(taken.into_iter().map(ms).collect::<Vec<_>>(), expected);
    }
}
