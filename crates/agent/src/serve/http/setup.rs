//! The responder's configuration: makes the machine's behaviour of the specification. Refuses impossible values with
//! one line that names the possible ones.

use leadline_http::{Behaviour, DelayShape, Share, Stalls};
use leadline_tls::{ServerTls, TlsSetupError};
use leadline_wire::{ErrorReport, HttpAnswer};

use crate::events::input_error;

/// Returns how requests are answered, and when the server stalls.
pub fn behaviour(answer: &HttpAnswer) -> Result<(Behaviour, Option<Stalls>), ErrorReport> {
    let refused = |message: &str| input_error("bad_answer", message);
    let errors = Share::from_ratio(answer.error_ratio).ok_or_else(|| refused("errors is a share between 0 and 1"))?;
    let behaviour = Behaviour {
        status: answer.status,
        body_bytes: answer.body_bytes,
        chunked: answer.chunked,
        delay_ns: answer.delay_us.saturating_mul(1_000),
        shape: match answer.delay_shape {
            leadline_wire::DelayShape::Constant => DelayShape::Constant,
            leadline_wire::DelayShape::Uniform => DelayShape::Uniform,
            leadline_wire::DelayShape::Exponential => DelayShape::Exponential,
        },
        errors,
        close_after: answer.close_after,
    };
    let stalls = match answer.stall_every_ms {
        None => None,
        Some(every_ms) => {
            let (every_ns, length_ns) = (every_ms.saturating_mul(1_000_000), answer.stall_ms.saturating_mul(1_000_000));
            let message =
                format!("a stall of {} ms every {every_ms} ms: it has to end before the next begins", answer.stall_ms);
            Some(Stalls::new(every_ns, length_ns).ok_or_else(|| refused(&message))?)
        }
    };
    Ok((behaviour.checked().map_err(refused)?, stalls))
}

/// Returns the specified certificate, or one that is created for the addresses of the server.
pub fn tls(answer: &HttpAnswer, bind: &[String]) -> Result<ServerTls, ErrorReport> {
    let failed = |error: TlsSetupError| input_error("bad_identity", error.to_string());
    match &answer.identity {
        Some(identity) => ServerTls::from_pem(&identity.certificate_pem, &identity.key_pem).map_err(failed),
        None => ServerTls::self_signed(bind).map(|(tls, _)| tls).map_err(failed),
    }
}

#[cfg(test)]
mod tests {
    use leadline_wire::HttpAnswer;

    use super::behaviour;

    #[test]
    fn impossible_behaviour_is_refused_by_name() {
        let plain = HttpAnswer::default();
        assert!(behaviour(&plain).is_ok());
        let cases = [
            (HttpAnswer { status: 99, ..plain.clone() }, "status is"),
            (HttpAnswer { body_bytes: u64::MAX, ..plain.clone() }, "size is"),
            (HttpAnswer { delay_us: u64::MAX, ..plain.clone() }, "delay is"),
            (HttpAnswer { error_ratio: 1.5, ..plain.clone() }, "errors is"),
            (HttpAnswer { error_ratio: f64::NAN, ..plain.clone() }, "errors is"),
            (HttpAnswer { close_after: Some(0), ..plain.clone() }, "close is"),
            (HttpAnswer { stall_every_ms: Some(5), stall_ms: 5, ..plain.clone() }, "a stall of 5 ms every 5 ms"),
            (HttpAnswer { stall_every_ms: Some(0), ..plain.clone() }, "a stall of 0 ms every 0 ms"),
        ];
        for (answer, message) in cases {
            let refused = behaviour(&answer).unwrap_err();
            assert!(refused.message.starts_with(message), "{}", refused.message);
        }
    }
}
