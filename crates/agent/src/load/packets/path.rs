//! Why frames cannot take a path.

use std::io;

use leadline_sys::bpf::SharedMap;
use leadline_wire::ErrorReport;

use crate::events::input_error;

/// Why a path cannot be used, and whether it may be another one that can.
#[derive(Debug)]
pub struct NoPath {
    /// The name of the reason.
    pub code: &'static str,
    /// The reason.
    pub reason: String,
}

impl NoPath {
    /// A reason with its name.
    pub fn new(code: &'static str, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }

    /// The error where no other path is allowed.
    pub fn refuse(self) -> ErrorReport {
        input_error(self.code, self.reason)
    }
}

/// Refuses BPF where this process may not use it.
pub fn require_bpf() -> Result<(), NoPath> {
    match SharedMap::new(8) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(NoPath::new("no_bpf", "this agent may not use BPF; that needs root, or CAP_BPF and CAP_NET_ADMIN"))
        }
        Err(error) => Err(NoPath::new("no_bpf", format!("BPF cannot be used here: {error}"))),
    }
}
