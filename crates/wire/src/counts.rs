//! Counters of each kind of load in addition to those of its flows. Owns their names: a field's name is its key in
//! JSON, and all counters of a kind are in one object. A counter in `always` is always present; one in `rare` is
//! omitted if its kind of load does not have it, or if it is 0.

use std::ops::Index;

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;

/// The counters of a task, by its kind of load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Counts {
    /// The counters of `http`.
    Http(Box<HttpCounts>),
    /// The counters of `tunnel`, and of other kinds through a fleet's tunnels.
    Tunnel(Box<TunnelCounts>),
    /// The counters of `tcp`, `udp` and `rr`.
    Flows(FlowCounts),
    /// No counters: `crypto` has none.
    None(NoCounts),
}

/// Defines structs of counters that are serialized, added up and found by name.
macro_rules! counts {
    (
        $(#[$type_meta:meta])*
        $type:ident {
            always { $($(#[$always_meta:meta])* $always:ident,)* }
            rare { $($(#[$rare_meta:meta])* $rare:ident,)* }
            parts { $($(#[$part_meta:meta])* $part:ident: $part_type:ty,)* }
        }
    ) => {
        $(#[$type_meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub struct $type {
            $($(#[$always_meta])* pub $always: u64,)*
            $(
                $(#[$rare_meta])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $rare: Option<u64>,
            )*
            $($(#[$part_meta])* #[serde(flatten)] pub $part: $part_type,)*
        }

        impl $type {
            /// Adds each counter of `more`.
            pub fn add(&mut self, more: &Self) {
                $(self.$always += more.$always;)*
                $(add(&mut self.$rare, more.$rare);)*
                $(self.$part.add(&more.$part);)*
            }

            /// Returns the counter with that name; `None` if it is omitted.
            #[must_use]
            pub fn get(&self, name: &str) -> Option<&u64> {
                match name {
                    $(stringify!($always) => Some(&self.$always),)*
                    $(stringify!($rare) => self.$rare.as_ref(),)*
                    _ => None$(.or_else(|| self.$part.get(name)))*,
                }
            }

            /// Returns each counter that is present, with its name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                let always: Vec<(&'static str, u64)> = vec![$((stringify!($always), self.$always),)*];
                let rare: Vec<(&'static str, Option<u64>)> = vec![$((stringify!($rare), self.$rare),)*];
                let rare = rare.into_iter().filter_map(|(name, count)| Some((name, count?)));
                always.into_iter().chain(rare)$(.chain(self.$part.named()))*
            }
        }

        impl Index<&str> for $type {
            type Output = u64;

            fn index(&self, name: &str) -> &u64 {
                self.get(name).expect("a counter that is present")
            }
        }
    };
}

counts! {
    /// Counters of an HTTP load.
    HttpCounts {
        always {
            /// Requests that were due.
            requests_due,
            /// Requests whose last byte was sent.
            requests_sent,
            /// Complete responses.
            responses,
            /// Requests that were sent and not answered when the time was over.
            unanswered,
            /// Of these, requests that had waited for longer than a second.
            unanswered_over_1s,
            /// Requests that were due and not completely sent when the time was over.
            unsent,
            /// Of these, requests that waited for the server: no connection was free, or the socket did not accept
            /// them.
            unsent_while_busy,
            /// Requests that were sent, and were due while no connection was free.
            due_while_busy,
            /// Connections that failed and could not be opened again by the end.
            connections_down,
            /// Bytes received.
            bytes,
            /// Bytes of response bodies received.
            body_bytes,
            /// Connections opened.
            connections_opened,
        }
        rare {
            /// Connections that are open at this moment; only in a `Standing`.
            connections,
            /// Requests of `unsent` that were too many for an age each.
            unsent_without_age,
            /// TLS handshakes that authenticated the server.
            tls_full,
            /// TLS handshakes that resumed a session.
            tls_resumed,
            /// Redirects followed.
            redirects,
            /// Requests that ended, with a response or an error, before their last byte was sent.
            cut_off,
            /// Requests that were sent again, because the server closed a kept connection before it responded.
            repeated,
            /// Durations that exceeded a histogram's range.
            histogram_overflow,
        }
        parts {
            /// Responses by status class.
            status: StatusCounts,
        }
    }
}

counts! {
    /// Responses by the first digit of their status code.
    StatusCounts {
        always {}
        rare {
            /// Of status 0 to 99.
            status_0xx,
            /// Of status 100 to 199.
            status_1xx,
            /// Of status 200 to 299.
            status_2xx,
            /// Of status 300 to 399.
            status_3xx,
            /// Of status 400 to 499.
            status_4xx,
            /// Of status 500 to 599.
            status_5xx,
            /// Of status 600 to 699.
            status_6xx,
            /// Of status 700 to 799.
            status_7xx,
            /// Of status 800 to 899.
            status_8xx,
            /// Of status 900 to 999.
            status_9xx,
        }
        parts {}
    }
}

counts! {
    /// Counters of a fleet of VPN clients. Each client counts in exactly one of `configured`, `partial`, `failed`,
    /// `waiting` and `connecting`.
    TunnelCounts {
        always {
            /// Clients with a tunnel through which a packet came back.
            configured,
            /// Clients with a tunnel that failed a check.
            partial,
            /// Clients without a tunnel.
            failed,
            /// Clients that have not tried yet.
            waiting,
            /// Attempts, including the first of each client.
            attempts,
            /// First packets of attempts sent, including repeated ones.
            resets_sent,
            /// Control packets sent again.
            retransmits,
            /// Clients that failed and were configured afterwards.
            recovered,
            /// Clients that lost their tunnel without an action that caused it.
            lost,
        }
        rare {
            /// Clients whose attempt has not ended; only in a `Standing`, because at the end they have failed.
            connecting,
            /// Clients that failed and wait before they try again; only in a `Standing`.
            resting,
            /// Clients that failed and were `partial` afterwards.
            recovered_partial,
            /// Attempts of clients that an action made reconnect.
            reconnects_begun,
            /// Keys renewed.
            renegotiated,
            /// Keys whose renewal an action requested.
            renegotiations_asked,
            /// Of these, keys that were not renewed before their tunnel ended.
            renegotiations_unfinished,
            /// Renewals that failed, whichever side began them.
            renegotiations_failed,
            /// AUTH_PENDING messages received.
            auth_pending,
            /// Cookies received: the gateway was under load and asked clients to prove their addresses.
            cookies_received,
            /// Clients whose IKE SA was up at the end; only in an outcome, as the next three.
            ike_up,
            /// Clients to which the gateway had assigned an address by IKE.
            ip_assigned,
            /// Clients whose data channel had keys: a child SA, or WireGuard's session.
            child_up,
            /// Clients through whose tunnel a packet had come back.
            traffic_both_ways,
            /// Changes of pushed options in running tunnels.
            updated,
            /// Of these, changes that gave a client the address or the number of another client.
            updated_not_unique,
            /// Actions of clients that had no tunnel at that time, or had not finished an earlier renewal.
            actions_skipped,
            /// Sockets with a source port that another client had used before.
            ports_again,
            /// Datagrams that the server's host refused after the server had answered.
            datagrams_refused,
            /// Other errors of sockets that ended no attempt.
            socket_errors,
            /// Packets that the socket refused with an error.
            packets_not_sent,
            /// Packets received that no key or session matches.
            packets_rejected,
            /// Packets received twice.
            packets_replayed,
            /// Pings sent through the tunnels.
            pings_sent,
            /// Pings answered.
            pings_answered,
            /// Pings that were due and not sent.
            pings_unsent,
            /// Pings sent before the unsettled clients arrived.
            pings_sent_before,
            /// Answers to these pings.
            pings_answered_before,
            /// Pings sent while the unsettled clients arrived.
            pings_sent_during,
            /// Answers to these pings.
            pings_answered_during,
            /// Pings sent after the unsettled clients arrived.
            pings_sent_after,
            /// Answers to these pings.
            pings_answered_after,
            /// Packets sent through the tunnels; only in an outcome.
            inside_sent,
            /// Packets received through the tunnels; only in an outcome.
            inside_received,
            /// Progress messages of the far end that arrived too fast to be passed on.
            far_progress_passed_over,
            /// Durations that exceeded a histogram's range.
            histogram_overflow,
        }
        parts {
            /// The counters of the load through the tunnels.
            traffic: TrafficCounts,
        }
    }
}

counts! {
    /// Counters of load through tunnels; each kind of traffic has some of them.
    TrafficCounts {
        always {}
        rare {
            /// HTTP requests that were due.
            requests_due,
            /// HTTP requests whose last byte was sent.
            requests_sent,
            /// Packets or requests that were due and not sent.
            unsent,
            /// Of these, those that were too many for an age each.
            unsent_without_age,
            /// Packets or requests without an answer at the end; of a fleet's `Standing` the clients without an answer so far.
            unanswered,
            /// HTTP requests that had waited for longer than a second at the end.
            unanswered_over_1s,
            /// HTTP connections opened.
            connections,
            /// Datagrams received too late to be distinguished from lost ones.
            stale,
            /// Packets received that belong to no flow.
            strays,
            /// Latencies below the error of the clocks, taken as 0.
            latency_clamped,
        }
        parts {
            /// HTTP responses by status class.
            status: StatusCounts,
        }
    }
}

counts! {
    /// Counters of the kinds of load that consist of flows.
    FlowCounts {
        always {
            /// Units that were due and not sent, by both sides.
            unsent,
        }
        rare {
            /// Datagrams received too late to be distinguished from lost ones.
            stale,
            /// Datagrams received that belong to no flow.
            strays,
            /// Answers received after their time limit.
            late_answers,
            /// Durations that exceeded a histogram's range.
            histogram_overflow,
            /// Answers received again.
            duplicate_answers,
            /// Requests that were sent, and were due while as many as allowed were outstanding.
            due_while_busy,
            /// Units of `unsent` that waited for the peer.
            unsent_while_busy,
            /// Connections, or source ports, that transactions used.
            connections_opened,
        }
        parts {}
    }
}

/// The counters of a kind of load that has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoCounts {}

impl Counts {
    /// Returns the counter with that name; `None` if it is omitted.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&u64> {
        match self {
            Self::Http(counts) => counts.get(name),
            Self::Tunnel(counts) => counts.get(name),
            Self::Flows(counts) => counts.get(name),
            Self::None(NoCounts {}) => None,
        }
    }
}

impl Index<&str> for Counts {
    type Output = u64;

    fn index(&self, name: &str) -> &u64 {
        self.get(name).expect("a counter that is there")
    }
}

impl StatusCounts {
    /// Returns the counters of responses by the first digit of their status code; a class without a response is
    /// omitted.
    #[must_use]
    pub fn of(classes: [u64; 10]) -> Self {
        let [c0, c1, c2, c3, c4, c5, c6, c7, c8, c9] = classes.map(unless_zero);
        Self {
            status_0xx: c0,
            status_1xx: c1,
            status_2xx: c2,
            status_3xx: c3,
            status_4xx: c4,
            status_5xx: c5,
            status_6xx: c6,
            status_7xx: c7,
            status_8xx: c8,
            status_9xx: c9,
        }
    }
}

/// Returns a rare counter, which is omitted if it is 0.
#[must_use]
pub fn unless_zero(count: u64) -> Option<u64> {
    (count > 0).then_some(count)
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn counters_of_each_kind_are_one_flat_object() {
        let flows = Counts::Flows(FlowCounts { unsent: 3, strays: Some(1), ..FlowCounts::default() });
        assert_eq!(to_value(&flows).unwrap(), json!({"unsent": 3, "strays": 1}));
        let traffic = TrafficCounts {
            unsent: Some(2),
            status: StatusCounts::of([0, 0, 7, 0, 0, 0, 0, 0, 0, 0]),
            ..Default::default()
        };
        let tunnel = Counts::Tunnel(Box::new(TunnelCounts { configured: 4, traffic, ..TunnelCounts::default() }));
        let value = to_value(&tunnel).unwrap();
        assert_eq!((&value["configured"], &value["unsent"], &value["status_2xx"]), (&json!(4), &json!(2), &json!(7)));
        assert!(value.get("pings_sent").is_none() && value.get("traffic").is_none());
        assert_eq!(to_value(Counts::None(NoCounts {})).unwrap(), json!({}));
    }

    #[test]
    fn counters_are_read_as_those_of_their_own_kind() {
        let http = HttpCounts { responses: 5, redirects: Some(2), ..HttpCounts::default() };
        let tunnel = TunnelCounts { failed: 1, connecting: Some(2), ..TunnelCounts::default() };
        let all = [
            Counts::Http(Box::new(http)),
            Counts::Tunnel(Box::new(tunnel)),
            Counts::Flows(FlowCounts { unsent: 0, stale: Some(1), ..FlowCounts::default() }),
            Counts::None(NoCounts {}),
        ];
        for counts in all {
            assert_eq!(from_value::<Counts>(to_value(&counts).unwrap()).unwrap(), counts);
        }
    }

    #[test]
    fn sum_keeps_a_rare_counter_left_out_until_one_side_has_it() {
        let mut sum = TrafficCounts { unsent: Some(1), ..TrafficCounts::default() };
        let status = StatusCounts::of([0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        sum.add(&TrafficCounts { unsent: Some(2), strays: Some(0), status, ..TrafficCounts::default() });
        assert_eq!((sum["unsent"], sum["strays"], sum["status_2xx"], sum.get("stale")), (3, 0, 1, None));
        assert_eq!(sum.named().collect::<Vec<_>>(), [("unsent", 3), ("strays", 0), ("status_2xx", 1)]);
    }
}
