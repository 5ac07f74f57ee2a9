//! A client's row and the rows of its attempts in the report: the machine's figures as types of the contract.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use leadline_tunnel::client::assigned_config::AssignedConfig;
use leadline_tunnel::client::attempt_log::Attempt;
use leadline_tunnel::client::phase::{Occasion, Phase, Steps};
use leadline_wire::{FailureCause, TunnelAttemptReport, TunnelClientReport, TunnelOccasion, TunnelState};

use super::client::Client;

/// Returns the client's row.
pub fn client_row(client: &Client) -> TunnelClientReport {
    let machine = &client.machine;
    let present = machine.attempt().map_or(Steps::default(), |attempt| attempt.steps);
    let success = machine.success();
    let steps = success.map_or(present, |success| success.steps);
    let assigned = success.map(|success| &success.assigned).or(machine.assigned());
    let since = |step_ns: u64| steps.since_due(step_ns);
    TunnelClientReport {
        client: machine.number(),
        state: match machine.phase() {
            Phase::Waiting => TunnelState::Waiting,
            Phase::Configured => TunnelState::Configured,
            Phase::Overdue | Phase::Contested | Phase::Partial => TunnelState::Partial,
            _ => TunnelState::Failed,
        },
        cause: machine.cause().map(FailureCause::from),
        due_ns: steps.due_ns,
        first_due_ns: machine.first_due_ns().unwrap_or(steps.due_ns),
        sent_ns: steps.sent_ns.map(since),
        answered_ns: steps.answered_ns.map(since),
        tls_ns: steps.tls_ns.map(since),
        keys_ns: steps.keys_ns.map(since),
        pushed_ns: steps.pushed_ns.map(since),
        ike_up_ns: steps.ike_up_ns.map(since),
        ip_assigned_ns: steps.ip_assigned_ns.map(since),
        child_up_ns: steps.child_up_ns.map(since),
        configured_ns: steps.configured_ns.map(since),
        ended_ns: machine.attempt().and_then(|attempt| attempt.ended_ns).map(since),
        heard_ns: machine.heard_ns().map(since),
        attempts: machine.attempt().map_or(0, |attempt| attempt.number),
        retransmits: machine.retransmits(),
        addresses: addresses(assigned),
        peer_id: assigned.and_then(|assigned| assigned.peer_id),
        cipher: assigned.and_then(|assigned| assigned.cipher).map(str::to_owned),
        local: machine.local().map(|local| local.to_string()),
        inside: inner_counts(client),
    }
}

/// Returns the rows of a client's recorded attempts, in their order.
pub fn attempt_rows(client: &Client) -> impl Iterator<Item = TunnelAttemptReport> + '_ {
    let number = client.machine.number();
    let attempts = client.machine.earlier_attempts().chain(client.machine.attempt());
    attempts.map(move |attempt| attempt_row(number, &attempt))
}

fn attempt_row(client: u32, attempt: &Attempt) -> TunnelAttemptReport {
    let steps = attempt.steps;
    let since = |step_ns: u64| steps.since_due(step_ns);
    TunnelAttemptReport {
        client,
        attempt: attempt.number,
        occasion: match attempt.occasion {
            Occasion::Arrival => TunnelOccasion::Arrival,
            Occasion::Retry => TunnelOccasion::Retry,
            Occasion::Reconnect => TunnelOccasion::Reconnect,
        },
        due_ns: steps.due_ns,
        sent_ns: steps.sent_ns.map(since),
        answered_ns: steps.answered_ns.map(since),
        tls_ns: steps.tls_ns.map(since),
        keys_ns: steps.keys_ns.map(since),
        pushed_ns: steps.pushed_ns.map(since),
        ike_up_ns: steps.ike_up_ns.map(since),
        ip_assigned_ns: steps.ip_assigned_ns.map(since),
        child_up_ns: steps.child_up_ns.map(since),
        configured_ns: steps.configured_ns.map(since),
        ended_ns: attempt.ended_ns.map(since),
        cause: attempt.cause.map(FailureCause::from),
        server: attempt.server.as_ref().map(SocketAddr::to_string).unwrap_or_default(),
        local: attempt.local.map(|local| local.to_string()),
        addresses: addresses(attempt.assigned.as_ref()),
        peer_id: attempt.assigned.and_then(|assigned| assigned.peer_id),
    }
}

fn addresses(assigned: Option<&AssignedConfig>) -> Vec<String> {
    assigned.into_iter().flat_map(AssignedConfig::addresses).map(|address| address.to_string()).collect()
}

/// Returns the packet counts of the client's tunnel; counts of 0 are left out.
fn inner_counts(client: &Client) -> BTreeMap<String, u64> {
    let (pings_sent, pings_answered) = client.machine.pings();
    let counts = [
        ("packets_sent", client.machine.packets_sent()),
        ("packets_received", client.machine.packets_received()),
        ("pings_sent", pings_sent),
        ("pings_answered", pings_answered),
    ];
    let all = counts.into_iter().chain(client.traffic.counts());
    all.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}
