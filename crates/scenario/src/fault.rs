//! Why a value cannot be computed.

/// Why a value cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The name under which it is counted.
    pub cause: &'static str,
    /// What is wrong, in words.
    pub detail: String,
}

/// Returns a fault.
///
/// # Errors
/// Always.
pub fn fault<T>(cause: &'static str, detail: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { cause, detail: detail.into() })
}

/// The longest text that a template or an operation may make, bytes.
const LONGEST_TEXT_BYTES: usize = 16 << 20;

/// Refuses a text that is too long.
///
/// # Errors
/// It is.
pub fn check_length(text: &str) -> Result<(), Fault> {
    if text.len() > LONGEST_TEXT_BYTES {
        return fault("text_too_long", format!("a text is longer than {LONGEST_TEXT_BYTES} bytes"));
    }
    Ok(())
}
