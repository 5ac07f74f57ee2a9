//! The syntax of swanctl.conf: sections in braces, settings with `=`, comments after `#`, quotes. `include` and
//! references between sections are refused.

use zeroize::Zeroize;

/// The deepest nesting that is read; swanctl.conf needs four.
const MAX_DEPTH: usize = 8;

/// A section with its settings and sections, in order.
#[derive(Default)]
pub struct Section {
    pub name: String,
    pub line: usize,
    pub settings: Vec<Setting>,
    pub sections: Vec<Section>,
}

/// A setting.
pub struct Setting {
    pub key: String,
    pub value: String,
    pub line: usize,
}

impl Drop for Setting {
    fn drop(&mut self) {
        self.value.zeroize();
    }
}

impl Section {
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    pub fn setting(&self, key: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.key == key)
    }

    /// Settings whose key begins with `start`: swanctl numbers them.
    pub fn settings_like<'s>(&'s self, start: &'s str) -> impl Iterator<Item = &'s Setting> {
        self.settings.iter().filter(move |setting| setting.key.starts_with(start))
    }

    pub fn refuse(&self, what: &str) -> String {
        format!("swanctl.conf:{}: {} {what}", self.line, self.name)
    }
}

impl Setting {
    /// An error about the setting; a secret's value is not in it.
    pub fn refuse(&self, what: &str) -> String {
        if self.key == "secret" {
            return format!("swanctl.conf:{}: {} {what}", self.line, self.key);
        }
        format!("swanctl.conf:{}: {} = {:?} {what}", self.line, self.key, self.value)
    }
}

/// Parses a file.
///
/// # Errors
/// One line with its number.
pub fn parse(text: &str) -> Result<Section, String> {
    let mut stack = vec![Section::default()];
    for (line, number) in text.lines().zip(1..) {
        let mut rest = line.trim_start();
        while !rest.is_empty() && !rest.starts_with('#') {
            rest = parse_item(rest, number, &mut stack)?.trim_start();
        }
    }
    match (stack.pop(), stack.last()) {
        (Some(file), None) => Ok(file),
        (Some(open), _) => Err(open.refuse("has no closing brace")),
        _ => Err("swanctl.conf: a brace is missing".to_owned()),
    }
}

/// Takes one brace, section name or setting from the front of a line.
fn parse_item<'t>(rest: &'t str, line: usize, stack: &mut Vec<Section>) -> Result<&'t str, String> {
    if let Some(after) = rest.strip_prefix('}') {
        let closed = stack.pop().filter(|_| !stack.is_empty());
        let closed = closed.ok_or(format!("swanctl.conf:{line}: a closing brace closes nothing"))?;
        stack.last_mut().expect("the file itself").sections.push(closed);
        return Ok(after);
    }
    let end = rest.find(['=', '{', '}', '#']).unwrap_or(rest.len());
    let name = rest[..end].trim();
    let wrong = |what: &str| format!("swanctl.conf:{line}: {name:?} {what}");
    if name.is_empty() || name.contains([' ', '\t', '"', ':']) {
        return Err(wrong("is neither a section nor a setting; `include` and references are not supported"));
    }
    match rest[end..].chars().next() {
        Some('{') => {
            if stack.len() > MAX_DEPTH {
                return Err(wrong("is nested too deeply"));
            }
            stack.push(Section { name: name.to_owned(), line, ..Section::default() });
            Ok(&rest[end + 1..])
        }
        Some('=') => {
            let (value, after) = parse_value(rest[end + 1..].trim_start(), line)?;
            let settings = &mut stack.last_mut().expect("the file itself").settings;
            settings.push(Setting { key: name.to_owned(), value, line });
            Ok(after)
        }
        _ => Err(wrong("needs a value after `=` or a section in braces")),
    }
}

fn parse_value(rest: &str, line: usize) -> Result<(String, &str), String> {
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find(['}', '#']).unwrap_or(rest.len());
        return Ok((rest[..end].trim().to_owned(), &rest[end..]));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((value, &quoted[at + 1..])),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    Err(format!("swanctl.conf:{line}: a quote is not closed"))
}
