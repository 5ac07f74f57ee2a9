//! A distribution in reports.

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;

/// A mergeable histogram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistogramReport {
    /// The recorded metric, in ns.
    pub metric: String,
    /// Number of values.
    pub count: u64,
    /// HdrHistogram, V2 encoding, base64.
    pub hdr_v2: String,
}
