//! IKEv2 and ESP: in virtual time against a gateway of the tests' own.

mod exchanges;
mod hostile;
mod link;
mod measurements;
mod responder;
mod responder_sa;
