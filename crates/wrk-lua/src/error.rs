//! Errors of a script in one line, with the script's name and line number. A traceback is not shown; only the
//! position in the script is taken from it.

/// Lua's name of the prelude.
pub(crate) const OWN_CHUNK: &str = "(wrk)";

/// An error while a script is loaded or one of its functions runs: one line with the position, the message and the
/// function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScriptError(pub(crate) String);

impl ScriptError {
    /// Converts an error of Lua. `chunk` is Lua's name of the script; `during` is the function that was called, or
    /// empty while the file runs.
    pub(crate) fn from_lua(error: &mlua::Error, chunk: &str, during: &str) -> Self {
        let (message, trace) = parts(error);
        Self::describe(&message, &trace, chunk, during)
    }

    /// Creates an error that this crate detected, not Lua.
    pub(crate) fn detected(chunk: &str, problem: &str) -> Self {
        Self(format!("{chunk}: {problem}"))
    }

    fn describe(message: &str, trace: &str, chunk: &str, during: &str) -> Self {
        let position = format!("{chunk}:");
        let mut line = without_prelude_position(one_line(message));
        if !line.contains(&position) {
            // The error occurred in a function that the script called; the trace has the line of the call.
            let place = trace.lines().find_map(|step| place_in(step.trim_start(), &position));
            line = match place {
                Some(place) => format!("{place}: {line}"),
                None => format!("{chunk}: {line}"),
            };
        }
        if !during.is_empty() {
            line.push_str(&format!(" (in {during})"));
        }
        Self(line)
    }
}

/// Splits an error into its message and its traceback.
fn parts(error: &mlua::Error) -> (String, String) {
    match error {
        mlua::Error::RuntimeError(text) => split(text),
        mlua::Error::SyntaxError { message, .. } => split(message),
        mlua::Error::MemoryError(_) => ("out of memory".to_owned(), String::new()),
        mlua::Error::CallbackError { traceback, cause } => (parts(cause).0, traceback.clone()),
        other => split(&other.to_string()),
    }
}

fn split(text: &str) -> (String, String) {
    match text.split_once("\nstack traceback:") {
        Some((message, trace)) => (message.to_owned(), trace.to_owned()),
        None => (text.to_owned(), String::new()),
    }
}

fn one_line(text: &str) -> String {
    let mut words = text.split(['\n', '\r']).map(str::trim).filter(|part| !part.is_empty());
    let mut line = words.next().unwrap_or("an error without a message").to_owned();
    for part in words {
        line.push_str("; ");
        line.push_str(part);
    }
    line
}

/// Removes the position in the prelude, which the user cannot read.
fn without_prelude_position(line: String) -> String {
    let number = line.strip_prefix(OWN_CHUNK).and_then(|rest| rest.strip_prefix(':'));
    match number.and_then(|rest| rest.split_once(": ")) {
        Some((digits, rest)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => rest.to_owned(),
        _ => line,
    }
}

/// Returns `script.lua:12` if a step of a traceback is in the script.
fn place_in(step: &str, position: &str) -> Option<String> {
    let number: String = step.strip_prefix(position)?.chars().take_while(char::is_ascii_digit).collect();
    (!number.is_empty()).then(|| format!("{position}{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(text: &str, during: &str) -> String {
        ScriptError::from_lua(&mlua::Error::RuntimeError(text.to_owned()), "a.lua", during).to_string()
    }

    #[test]
    fn position_in_the_message_is_kept() {
        assert_eq!(
            describe("a.lua:3: no\nstack traceback:\n\t[C]: in ?\n\ta.lua:3: in x", "request()"),
            "a.lua:3: no (in request())"
        );
    }

    #[test]
    fn error_outside_the_script_is_placed_at_the_scripts_call() {
        let text =
            "bad argument\nstack traceback:\n\t[C]: in 'len'\n\t(wrk):9: in 'format'\n\ta.lua:7: in f\n\ta.lua:8: in g";
        assert_eq!(describe(text, ""), "a.lua:7: bad argument");
    }

    #[test]
    fn message_of_several_lines_becomes_one_line() {
        assert_eq!(describe("a.lua:1: one\n\ntwo\r\nthree", ""), "a.lua:1: one; two; three");
        assert_eq!(describe("", ""), "a.lua: an error without a message");
    }
}
