//! HTTP/1.1 as state machines (RFC 9110, RFC 9112). Owns URLs, request bytes, both parsers, the state of client and
//! server connections, and the times at which requests are due. TLS is a separate machine (`crates/tls`). The
//! machines open no socket and read no clock; they count bodies and do not store them. A peer can make one connection
//! hold at most [`HEAD_LIMIT_BYTES`].

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
