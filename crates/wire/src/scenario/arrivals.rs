//! When users and iterations of a population begin and end.

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;

/// A load model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "model", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("discriminator" = {"propertyName": "model"}))]
pub enum Arrivals {
    /// A number of users that changes in stages; each begins its next iteration when the last one has ended. k6's
    /// `constant-vus`, `ramping-vus` and `per-vu-iterations`, JMeter's thread groups, Gatling's closed models.
    #[schemars(title = "UserArrivals")]
    Users {
        /// Users at the beginning.
        #[serde(default)]
        initial: u32,
        /// Consecutive stages, during which the number of users changes linearly. After the last stage the number
        /// stays; the end is by `iterations` or `duration_ms`.
        #[serde(default)]
        stages: Vec<UserStage>,
        /// When the first user of a ramp begins.
        first: FirstArrival,
        /// Iterations of each user, after which it ends; unlimited if absent.
        #[serde(default)]
        iterations: Option<u64>,
        /// When the population's time is over, ms after its beginning; if absent, when its users have done their
        /// iterations, or with the test.
        #[serde(default)]
        duration_ms: Option<u64>,
        /// How long an iteration of a user that is no longer wanted may go on, ms. k6's `gracefulRampDown`.
        #[serde(default)]
        ramp_down_ms: u64,
        /// Whether the iteration of such a user ends before its next request or with its current wait, and only a request
        /// that was sent is awaited for `ramp_down_ms`. JMeter's plugin groups.
        #[serde(default)]
        ramp_down_after_request: bool,
        /// Whether iterations that its time does not suffice for count as dropped, as k6 counts them.
        #[serde(default)]
        drop_undone: bool,
    },
    /// A number of iterations that users share: each takes the next one until none is left. k6's
    /// `shared-iterations`.
    #[schemars(title = "SharedIterations")]
    SharedIterations {
        /// Users, which begin at once.
        users: u32,
        /// Iterations of all users together.
        iterations: u64,
        /// When the population's time is over, ms after its beginning; with the test if absent.
        #[serde(default)]
        duration_ms: Option<u64>,
        /// Whether iterations that its time does not suffice for count as dropped, as k6 counts them.
        #[serde(default)]
        drop_undone: bool,
    },
    /// Iterations at a rate, whether or not earlier ones have ended. An iteration without a free user is dropped if
    /// there are `users_most`. k6's `constant-arrival-rate` and `ramping-arrival-rate`, Gatling's open models.
    #[schemars(title = "OpenArrivals")]
    Open {
        /// Iterations per second, in consecutive stages; the population's time is their sum.
        stages: Vec<OpenStage>,
        /// How iterations are spaced.
        spacing: Spacing,
        /// When the first iteration is due.
        first: FirstArrival,
        /// Users that exist before the first iteration.
        users_at_start: u32,
        /// The largest number of users; unlimited if absent.
        users_most: Option<u32>,
        /// Whether an iteration that needs one more user is dropped while that user is made, as k6 does. If not, it
        /// begins with the new user.
        #[serde(default)]
        drop_while_growing: bool,
    },
    /// Iterations at given times.
    #[schemars(title = "ScheduledArrivals")]
    Schedule {
        /// When each iteration is due, µs after the population's beginning, in ascending order.
        due_us: Vec<u64>,
        /// Users that exist before the first iteration.
        users_at_start: u32,
        /// The largest number of users; unlimited if absent.
        users_most: Option<u32>,
    },
}

/// A stage during which the number of users changes linearly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserStage {
    /// Users at its end.
    pub users: u32,
    /// Duration, ms; with 0 the number changes at once.
    pub duration_ms: u64,
}

/// A stage during which the rate of iterations changes linearly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenStage {
    /// Iterations per second at its beginning.
    pub from_per_s: f64,
    /// Iterations per second at its end.
    pub to_per_s: f64,
    /// Duration, ms; with 0, `at_once` iterations are due together.
    pub duration_ms: u64,
    /// Iterations that are due together at the stage's beginning. Gatling's `atOnceUsers`.
    #[serde(default)]
    pub at_once: u64,
}

/// When the first of several arrivals of a ramp or rate happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FirstArrival {
    /// At the beginning; arrival i (from 0) happens when i have become due. JMeter's ramps and k6's constant rate.
    AtStart,
    /// After the first interval; arrival i (from 0) happens when i + 1 have become due. k6's ramps.
    AfterInterval,
}

/// How iterations at a rate are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Spacing {
    /// Evenly.
    Even,
    /// Randomly and independently of each other; the number in each stage is the same as with even spacing.
    Poisson,
}

/// How iterations end that run when their time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("discriminator" = {"propertyName": "kind"}))]
pub enum IterationEnd {
    /// They go on for this time, and are interrupted then. k6's `gracefulStop`.
    #[schemars(title = "EndAfterIteration")]
    Iteration {
        /// The time, ms.
        grace_ms: u64,
    },
    /// They end before their next request or with their current wait; a request that was sent is awaited for this
    /// time. JMeter's scheduler.
    #[schemars(title = "EndAfterRequest")]
    Request {
        /// The time, ms.
        grace_ms: u64,
    },
}
