//! HTTP/1.1 exchanges as machines (RFC 9110, RFC 9112): given bytes and a time they say what to do.
//! Owns URLs, the request's bytes, both parsers, one connection's state on either side, and when requests are due.
//! TLS is a machine beside them (`crates/tls`).
//! Refuses: sockets, clocks, and keeping a body; bodies are counted, never copied. What a peer can make us hold
//! is bounded by [`HEAD_LIMIT_BYTES`] a connection.

mod behaviour;
mod body;
pub mod client;
mod connection;
mod error;
mod fields;
mod head;
mod lines;
mod request;
mod requests;
mod responder;
mod response;
mod scan;
mod schedule;
mod server;
mod sink;
mod template;
mod url;

pub use behaviour::{
    duration_ns, Behaviour, DelayShape, Share, Stalls, DEFAULT_BODY_BYTES, LARGEST_BODY_BYTES, LONGEST_DELAY_NS,
};
pub use connection::{Answer, Batch, ClientConnection, Closed, Outstanding, Timing};
pub use error::Malformed;
pub use lines::HEAD_LIMIT_BYTES;
pub use request::{FedRequest, Method, Request, RequestEvent, RequestParser};
pub use requests::{Picker, Piece, RequestSet, RequestSetError, LONGEST_CYCLE};
pub use responder::{Responder, Setup, Stream, BLOCKS};
pub use response::{End, FedResponse, Response, ResponseParser, INTERIM_LIMIT};
pub use schedule::{ClosedLoop, OpenLoop, Schedule, ThreadShare};
pub use server::ServerConnection;
pub use sink::Sink;
pub use template::{expect_no_bodies, expects_no_body, RequestTemplate, TemplateError};
pub use url::{Url, UrlError};
