//! Scenarios in virtual time: a server that answers each request after a time, and no socket.

mod damaged;
mod executors;
mod flows;
mod models;
mod pages;
mod records;
mod requests;
mod waits;

use std::collections::BTreeMap;
use std::sync::Arc;

use leadline_wire::scenario::{SampleBatch, SampleRule, ScenarioPlan};
use serde_json::{json, Value as Json};

use super::{Effect, ExchangeEnd, ExchangeFailure, Limits, ThreadShare, VirtualUsers};
use crate::compile::compile;
use crate::evaluate::Tools;
use crate::figures::Figures;
use crate::programs::flow::Send;
use crate::shared::Shared;
use crate::users::Users;

pub const MS: u64 = 1_000_000;

/// A response of the server.
pub struct Response {
    pub status: u16,
    pub head: &'static str,
    pub body: String,
    pub after_ms: u64,
}

pub fn ok(body: impl Into<String>) -> Response {
    Response { status: 200, head: "", body: body.into(), after_ms: 1 }
}

/// A request as the server got it.
#[derive(Clone, Debug)]
pub struct Got {
    pub at_ms: u64,
    pub url: String,
    pub text: String,
}

/// A finished run.
pub struct Run {
    pub got: Vec<Got>,
    pub figures: Figures,
    pub samples: Vec<SampleBatch>,
    /// Until when the main populations of any thread tried.
    pub tried_until_ms: Option<u64>,
    pub end_ms: u64,
}

impl Run {
    pub fn targets(&self) -> Vec<String> {
        self.got.iter().map(|got| got.url.trim_start_matches("http://a.test").to_owned()).collect()
    }

    pub fn times(&self) -> Vec<u64> {
        self.got.iter().map(|got| got.at_ms).collect()
    }
}

/// Returns a plan with one population of this flow.
pub fn plan(arrivals: Json, flow: Json) -> Json {
    json!({"name": "test", "populations": [{
        "name": "users", "phase": "main", "arrivals": arrivals, "end": {"kind": "iteration", "grace_ms": 30000},
        "on_error": "continue", "flow": flow,
    }]})
}

/// One user, once.
pub fn once() -> Json {
    json!({"model": "users", "initial": 1, "first": "at_start", "iterations": 1})
}

pub fn get(path: impl Into<Json>) -> Json {
    let path = path.into();
    let path = if path.is_array() { path } else { json!([path]) };
    json!({"action": {"kind": "request", "method": ["GET"], "host": ["a.test"], "path": path}})
}

pub fn var(name: &str) -> Json {
    json!({"op": "variable", "name": name})
}

pub fn lit(value: impl Into<Json>) -> Json {
    json!({"op": "literal", "value": value.into()})
}

pub fn op(op: &str, arguments: Json) -> Json {
    json!({"op": op, "arguments": arguments})
}

pub fn wait(ms: u64) -> Json {
    json!({"action": {"kind": "wait", "wait": {"kind": "constant", "ms": lit(ms)}}})
}

/// When each exchange ends, its thread, user and number; when it was sent, and its response.
type Ends = BTreeMap<(u64, usize, u32, u32), (u64, Option<Response>)>;

/// Runs a plan against a server; `None` is a reset.
pub fn run(plan: Json, serve: impl FnMut(&Got) -> Option<Response>) -> Run {
    run_threads(plan, 1, 60_000, serve)
}

pub fn run_threads(plan: Json, threads: u32, duration_ms: u64, mut serve: impl FnMut(&Got) -> Option<Response>) -> Run {
    let plan: ScenarioPlan = serde_json::from_value(plan).unwrap();
    let program = Arc::new(compile(&plan, 1, 1_445_412_480_000).unwrap());
    let shared = Arc::new(Shared::new(&program, threads));
    let limits = Limits { at_ns: 0, duration_ns: duration_ms * MS, warmup_ns: 0 };
    let tools = || Tools::new(1_445_412_480_000 * MS as i64);
    let machine = |index| {
        VirtualUsers::new(Arc::clone(&program), Arc::clone(&shared), tools(), ThreadShare { index, threads }, limits)
    };
    let mut machines: Vec<VirtualUsers> = (0..threads).map(machine).collect();
    machines.iter_mut().for_each(|machine| machine.keep_samples(Some(&SampleRule::All { with_urls: true })));
    let mut ends = Ends::new();
    let (mut now_ns, mut got) = (0, Vec::new());
    for _ in 0..2_000_000 {
        let mut next_ns: Option<u64> = None;
        for (thread, machine) in machines.iter_mut().enumerate() {
            next_ns = [next_ns, machine.run(now_ns)].into_iter().flatten().min();
            while let Some(effect) = machine.effect() {
                match effect {
                    Effect::Send(send) => {
                        let Send { user, exchange, outgoing, .. } = *send;
                        let text = String::from_utf8_lossy(&outgoing.bytes).into_owned();
                        let request = Got { at_ms: now_ns / MS, url: outgoing.url.absolute(), text };
                        let response = serve(&request);
                        let after_ms = response.as_ref().map_or(1, |response| response.after_ms);
                        got.push(request);
                        ends.insert((now_ns + after_ms * MS, thread, user, exchange), (now_ns, response));
                    }
                    Effect::Cancel { user } => ends.retain(|(_, own, other, _), _| (*other, *own) != (user, thread)),
                    Effect::CloseConnections { .. } => {}
                }
                next_ns = Some(now_ns);
            }
        }
        if machines.iter().all(VirtualUsers::is_done) {
            let mut figures = Figures::new(&program);
            let samples = machines.iter_mut().flat_map(|machine| {
                let samples = machine.samples().unwrap();
                samples.close();
                std::iter::from_fn(|| samples.take()).collect::<Vec<_>>()
            });
            let samples = samples.collect();
            let tried_until_ns = machines.iter().filter_map(VirtualUsers::tried_until_ns).max();
            machines.iter_mut().for_each(|machine| figures.merge(std::mem::take(machine.figures())));
            check_states(&figures);
            let tried_until_ms = tried_until_ns.map(|tried_ns| tried_ns / MS);
            return Run { got, figures, samples, tried_until_ms, end_ms: now_ns / MS };
        }
        let first_end_ns = ends.first_key_value().map(|((at_ns, ..), _)| *at_ns);
        let next_ns = next_ns.map(|next_ns| next_ns.max(now_ns));
        now_ns = [next_ns, first_end_ns].into_iter().flatten().min().expect("something is awaited");
        while let Some(entry) = ends.first_entry().filter(|entry| entry.key().0 <= now_ns) {
            let ((at_ns, thread, user, exchange), (sent_ns, response)) = entry.remove_entry();
            match response {
                Some(response) => {
                    let end = ExchangeEnd {
                        status: response.status,
                        reason: "Fine",
                        head: response.head,
                        body: response.body.as_bytes(),
                        body_bytes: response.body.len() as u64,
                        sent_ns,
                        first_ns: at_ns,
                        done_ns: at_ns,
                        sent_bytes: 100,
                        received_bytes: 200,
                        opening: None,
                    };
                    machines[thread].answered(user, exchange, &end, at_ns);
                }
                None => {
                    let failure = ExchangeFailure {
                        cause: "reset".into(),
                        detail: "reset".to_owned(),
                        timed_out: false,
                        sent_ns: Some(sent_ns),
                        sent_bytes: 100,
                        received_bytes: 0,
                        opening: None,
                    };
                    machines[thread].failed(user, exchange, failure, at_ns);
                }
            }
        }
    }
    panic!("the scenario does not end");
}

/// Every iteration that was due has exactly one state, and no user is left.
fn check_states(figures: &Figures) {
    for population in &figures.populations {
        let iterations = &population.iterations;
        let ended = iterations.completed + iterations.failed + iterations.interrupted;
        assert_eq!(iterations.due, ended + iterations.dropped + iterations.not_begun, "{iterations:?}");
        assert_eq!((iterations.begun, iterations.running, population.users), (ended, 0, 0), "{iterations:?}");
    }
}
