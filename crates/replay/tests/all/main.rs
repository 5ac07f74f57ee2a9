//! Tests of the crate through its interface.

mod gor;
mod har;
mod jtl;
mod large;
mod packet_faults;
mod packets;
mod recorded_captures;
mod stored_corpus;
mod truth;
mod wire;
