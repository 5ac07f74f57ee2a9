//! Operations on texts.

use std::sync::Arc;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use fancy_regex::Regex;
use leadline_wire::scenario::Op;
use md5::{Digest as _, Md5};

use crate::encoding::{form_decode, form_encode, unescaped};
use crate::fault::{check_length, fault, Fault};
use crate::numbers::as_integer;
use crate::program::OpName;
use crate::search::{read_json, too_slow, Nodes, Searches};
use crate::value::Value;

/// Applies an operation on texts to the values of its arguments.
pub fn apply(op: Op, extra: &OpName, values: &[Value], searches: &mut Searches) -> Result<Value, Fault> {
    let text = values.first().map(Value::text).unwrap_or_default();
    let part = values.get(1).map(Value::text).unwrap_or_default();
    bounded(match op {
        Op::Length => (text.chars().count() as i64).into(),
        Op::IsEmpty => text.is_empty().into(),
        Op::Substring => {
            let from = as_integer(&values[1])?.max(0) as usize;
            let to = values.get(2).map(as_integer).transpose()?.map_or(usize::MAX, |to| to.max(0) as usize);
            text.chars().take(to).skip(from).collect::<String>().into()
        }
        Op::IndexOf => text.find(&*part).map_or(-1, |at| text[..at].chars().count() as i64).into(),
        Op::Contains => text.contains(&*part).into(),
        Op::StartsWith => text.starts_with(&*part).into(),
        Op::EndsWith => text.ends_with(&*part).into(),
        Op::EqualIgnoringCase => (text.to_lowercase() == part.to_lowercase()).into(),
        Op::Matches | Op::Finds => {
            let pattern = pattern(extra, &part, op == Op::Matches, searches)?;
            pattern.is_match(&*text).map_err(|error| too_slow(&error))?.into()
        }
        Op::Group => {
            let pattern = pattern(extra, &part, false, searches)?;
            let default = i64::from(pattern.captures_len() > 1);
            let group = values.get(2).map(as_integer).transpose()?.unwrap_or(default).max(0) as usize;
            let found = pattern.captures(&*text).map_err(|error| too_slow(&error))?;
            found.and_then(|found| found.get(group).map(|one| one.as_str().into())).unwrap_or(Value::Nothing)
        }
        Op::Replace if part.is_empty() => text.as_ref().into(),
        Op::Replace => text.replace(&*part, &values[2].text()).into(),
        Op::ReplacePattern => {
            let pattern = pattern(extra, &part, false, searches)?;
            let replaced = pattern.try_replacen(&text, 0, &*values[2].text()).map_err(|error| too_slow(&error))?;
            replaced.into_owned().into()
        }
        Op::SplitPart => {
            let index = as_integer(&values[2])?;
            let found = usize::try_from(index).ok().and_then(|index| text.split(&*part).nth(index));
            found.map_or(Value::Nothing, Value::from)
        }
        Op::Upper => text.to_uppercase().into(),
        Op::Lower => text.to_lowercase().into(),
        Op::Trim => text.trim().into(),
        Op::JsonValue => {
            let (path, root) = (searches.path(&part)?, read_json(&text));
            Nodes::find(&path, root.as_ref()).first()?.map_or(Value::Nothing, Value::from)
        }
        Op::UrlEncode => form_encode(&text).into(),
        Op::UrlDecode => form_decode(&text).into(),
        Op::Base64Encode => BASE64_STANDARD.encode(&*text).into(),
        Op::Base64Decode => match BASE64_STANDARD.decode(text.trim()) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
            Err(error) => return fault("not_base64", error.to_string()),
        },
        Op::Sha256 => hexadecimal(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes()).as_ref()),
        Op::Md5 => hexadecimal(&Md5::digest(text.as_bytes())),
        Op::HtmlEscape => {
            text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").into()
        }
        Op::HtmlUnescape => unescaped(&text).into(),
        other => return fault("unknown_operation", format!("{other:?}")),
    })
}

fn pattern(extra: &OpName, text: &str, whole: bool, searches: &mut Searches) -> Result<Arc<Regex>, Fault> {
    match extra {
        OpName::Pattern(pattern) => Ok(Arc::clone(pattern)),
        _ => searches.pattern(text, whole),
    }
}

fn bounded(value: Value) -> Result<Value, Fault> {
    if let Value::Text(text) = &value {
        check_length(text)?;
    }
    Ok(value)
}

fn hexadecimal(bytes: &[u8]) -> Value {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}
