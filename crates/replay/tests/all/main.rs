//! Tests of the crate through its interface.

mod formats;
mod golden;
mod gor;
mod har;
mod jtl;
mod large;
mod made_log;
mod order;
mod packet_faults;
mod packets;
mod properties;
mod recorded_captures;
mod stored_corpus;
mod truth;
mod wire;
