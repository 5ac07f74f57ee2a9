//! What all users of TLS share: stable names for the ways in which it fails, so that HTTP and tunnels count alike.

mod failure;

pub use failure::{is_authority, TlsFailure, UnmetDemand};
