//! Keeps the values of secret variables out of messages.

use super::encoding::{append_target, form_encode};
use super::program::Program;
use super::shared::Shared;
use super::user::User;
use super::value::Value;

const MASK: &str = "***";

/// Returns a message in which the user's current values of masked variables are hidden: as they are, and as they stand
/// in a form or a URL.
#[must_use]
pub fn mask(program: &Program, shared: &Shared, user: &User, message: String) -> String {
    let mut secrets: Vec<String> = program.masked.iter().flat_map(|name| values(program, shared, user, name)).collect();
    // A value that is part of a longer one would leave the rest of that one in sight.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.into_iter().fold(message, |message, secret| hide(message, &secret))
}

fn values(program: &Program, shared: &Shared, user: &User, name: &str) -> impl Iterator<Item = String> {
    let own = program.slots.get(name).map(|slot| user.registers[*slot as usize].clone());
    let common = program.shared_slots.get(name).map(|slot| shared.get(*slot));
    let texts = [own, common, user.extra.get(name).cloned()].into_iter().flatten();
    texts.map(|value: Value| value.text().into_owned()).filter(|text| !text.is_empty())
}

fn hide(message: String, secret: &str) -> String {
    let mut target = String::new();
    append_target(secret, &mut target);
    let mut hidden = message;
    for form in [secret, &target, &form_encode(secret)] {
        if hidden.contains(form) {
            hidden = hidden.replace(form, MASK);
        }
    }
    hidden
}
