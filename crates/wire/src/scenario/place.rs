//! Where a part of a scenario is defined.

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;

/// A place in the file that a scenario was read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourcePlace {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}
