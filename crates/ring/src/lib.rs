//! The part of ring's interface that boringtun calls, re-exported from aws-lc-rs, which was made to be a replacement
//! for ring: the same types and functions under the same names. Holds no code of its own.

pub use aws_lc_rs::{aead, constant_time, error};
