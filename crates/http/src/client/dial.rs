//! Establishes a channel after TCP: the proxy's CONNECT, then TLS with ALPN. Owns the names under which failures of these
//! steps are counted.

use leadline_tls::{ClientTls, Handshake, TlsClient};

use super::channel::{Buffers, Channel, Proxy};
use super::effects::{Failure, Wire};
use crate::{Malformed, ResponseParser};

/// The steps from TCP to the first request.
#[derive(Clone, Copy)]
pub struct DialPlan<'r> {
    /// The CONNECT request to the proxy, if there is one.
    pub proxy_request: Option<&'r [u8]>,
    /// TLS, if the server uses it.
    pub tls: Option<&'r ClientTls>,
}

/// How far a channel is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialStep {
    /// The handshake goes on.
    Pending,
    /// A handshake with the proxy, or of TLS, has begun.
    Began,
    /// Requests can be sent, after this TLS handshake. One that carries early data has not ended.
    Ready(Option<Handshake>),
}

impl Channel {
    /// Continues after TCP.
    ///
    /// # Errors
    /// Why the next step cannot begin.
    pub fn dial(
        &mut self,
        plan: DialPlan<'_>,
        buffers: &mut Buffers,
        wire: &mut impl Wire,
    ) -> Result<DialStep, Failure> {
        let Some(request) = plan.proxy_request else { return self.begin_tls(plan.tls, buffers, wire) };
        self.proxy = Some(Box::new(Proxy { parser: ResponseParser::new(true), tls: plan.tls.cloned() }));
        self.send_records(request, wire)?;
        Ok(DialStep::Began)
    }

    /// Takes the bytes of [`super::Input::Received`] while a handshake is in progress.
    ///
    /// # Errors
    /// Why the handshake failed.
    pub fn continue_dial(&mut self, buffers: &mut Buffers, wire: &mut impl Wire) -> Result<DialStep, Failure> {
        if let Some(mut proxy) = self.proxy.take() {
            if has_accepted(&mut proxy.parser, wire.received())? {
                return self.begin_tls(proxy.tls.as_ref(), buffers, wire);
            }
            self.proxy = Some(proxy);
            return Ok(DialStep::Pending);
        }
        let Some(tls) = &mut self.tls else { return Ok(DialStep::Pending) };
        let taken = tls.receive(wire.received());
        let out = &mut buffers.out;
        out.clear();
        tls.take_output(out);
        let handshake = if tls.is_handshaking() { DialStep::Pending } else { DialStep::Ready(tls.handshake()) };
        if !out.is_empty() {
            // A TLS alert is sent as well. If it cannot be sent, the end of the connection reports it.
            let _ = self.send_records(out, wire);
        }
        taken.map(|()| handshake).map_err(Failure::from)
    }

    /// Returns why a handshake failed whose connection ended like this.
    pub fn fail_dial(&mut self, outcome: Result<(), Failure>) -> Failure {
        let has_proxy = self.proxy.is_some();
        match (outcome, self.end()) {
            (Err(failure), _) => failure,
            (Ok(()), Err(failure)) if !has_proxy => failure,
            (Ok(()), _) => Failure { name: "proxy_closed_early", detail: "the proxy closed the connection".to_owned() },
        }
    }

    /// The name of the failure of a handshake that took too long.
    #[must_use]
    pub fn timeout_name(&self) -> &'static str {
        if self.proxy.is_some() {
            "proxy_timeout"
        } else {
            "tls_timeout"
        }
    }

    fn begin_tls(
        &mut self,
        tls: Option<&ClientTls>,
        buffers: &mut Buffers,
        wire: &mut impl Wire,
    ) -> Result<DialStep, Failure> {
        let Some(tls) = tls else { return Ok(DialStep::Ready(None)) };
        let tls = self.tls.insert(Box::new(TlsClient::new(tls)?));
        if tls.offers_early_data() {
            // The first request is sent with the hello, if possible.
            return Ok(DialStep::Ready(None));
        }
        let out = &mut buffers.out;
        out.clear();
        tls.take_output(out);
        self.send_records(out, wire)?;
        Ok(DialStep::Began)
    }
}

/// Takes bytes of a proxy; returns whether it has accepted the connection.
fn has_accepted(parser: &mut ResponseParser, bytes: &[u8]) -> Result<bool, Failure> {
    let malformed = |cause: Malformed| Failure { name: "proxy_malformed", detail: cause.explanation().to_owned() };
    let fed = parser.feed(bytes).map_err(malformed)?;
    match fed.response {
        None => Ok(false),
        Some(response) if response.status / 100 != 2 => {
            Err(Failure { name: "proxy_refused", detail: format!("the proxy answered {}", response.status) })
        }
        // The server behind the proxy sends nothing before it receives a request.
        Some(_) if fed.consumed < bytes.len() => Err(malformed(Malformed::UnsolicitedBytes)),
        Some(_) => Ok(true),
    }
}
