//! Envoy's language of access logs: `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%"`.
//! `DEFAULT` is what it writes without a format of its own, `ISTIO` what Istio's proxies write.

use super::meaning::Variable;
use super::nginx::name_field;
use super::steps::Token;
use super::times::{TimePattern, MS_NS};

pub(super) const DEFAULT: &str =
    "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% %RESPONSE_FLAGS% \
     %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \
     \"%REQ(USER-AGENT)%\" \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\"";
pub(super) const ISTIO: &str =
    "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% %RESPONSE_FLAGS% \
     %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% \"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" \
     %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \
     \"%REQ(USER-AGENT)%\" \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER% \
     %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% \
     %ROUTE_NAME%";

/// Whether a format has operators that no other server has.
pub(super) fn is_format(text: &str) -> bool {
    ["%START_TIME", "%REQ(", "%PROTOCOL%", "%RESPONSE_CODE%"].iter().any(|operator| text.contains(operator))
}

/// Reads a format.
///
/// # Errors
/// What it has that is no format.
pub(super) fn read_format(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_end_matches("\\n").trim_end();
    while let Some((literal, after)) = rest.split_once('%') {
        tokens.push(Token::Literal(literal.as_bytes().to_vec()));
        // The time's own format has percent signs inside its parentheses.
        let end = match after.find(['(', '%']) {
            Some(open) if after[open..].starts_with('(') => after[open..].find(")%").map(|end| open + end + 1),
            end => end,
        };
        let (operator, behind) = after.split_at(end.ok_or("an operator without its second `%`")?);
        tokens.push(Token::Variable(read_operator(operator)?));
        rest = &behind[1..];
    }
    tokens.push(Token::Literal(rest.as_bytes().to_vec()));
    Ok(tokens)
}

fn read_operator(operator: &str) -> Result<Variable, String> {
    let (name, argument) = match operator.split_once('(') {
        Some((name, argument)) => (name, Some(argument.trim_end_matches(')'))),
        None => (operator, None),
    };
    Ok(match (name, argument) {
        ("START_TIME", None) => Variable::time(TimePattern::Iso, false),
        ("START_TIME", Some(_)) => {
            return Err("only %START_TIME% without a format of its own can be read".to_owned());
        }
        ("REQ", Some(field)) => read_field(field),
        ("RESPONSE_CODE", _) => Variable::Status,
        ("BYTES_SENT", _) => Variable::BodyBytes,
        ("DURATION", _) => Variable::Duration { unit_ns: MS_NS },
        ("DOWNSTREAM_REMOTE_ADDRESS", _) => Variable::AddressPort,
        ("DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", _) => Variable::Address,
        ("CONNECTION_ID", _) => Variable::Connection,
        _ => Variable::Skip,
    })
}

/// `:PATH`, `X-ENVOY-ORIGINAL-PATH?:PATH`, `USER-AGENT:20`.
fn read_field(field: &str) -> Variable {
    let upper = field.to_ascii_uppercase();
    if upper.contains(":PATH") {
        Variable::Target
    } else if upper.contains(":METHOD") {
        Variable::Method
    } else if upper.contains(":AUTHORITY") {
        Variable::Host
    } else if upper.contains(":SCHEME") {
        Variable::Scheme
    } else {
        let name = field.split(['?', ':']).next().unwrap_or(field);
        Variable::header(&name_field(&name.to_ascii_lowercase()))
    }
}
