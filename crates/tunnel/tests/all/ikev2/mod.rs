//! IKEv2 and ESP: in virtual time against a gateway of the tests' own, and against a real strongSwan.

mod exchanges;
mod hostile;
mod link;
mod measurements;
mod responder;
mod responder_sa;
mod strongswan;
