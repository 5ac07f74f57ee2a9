//! The last pages of a user, with those in their frames, and the links, images and forms in them. Owns which element a request
//! means, and the fields that a form sends by itself. Knows no request: `render` makes one of what is chosen.

use std::sync::Arc;

use leadline_http::Url;
use leadline_wire::scenario::PageElementKind;

use super::html::resources::joined;
use super::html::steps::Steps;
use super::html::{Document, Element};
use crate::fault::{fault, Fault};

/// The most pages: a window and its frames.
const MAX_PAGES: usize = 20;
/// The most bytes of all pages of a user.
const MAX_BYTES: usize = 4 << 20;

/// The last pages of a user.
#[derive(Debug, Default)]
pub struct Pages(Vec<Page>);

#[derive(Debug)]
struct Page {
    /// The name of its frame; empty for the window.
    frame: Box<str>,
    url: Url,
    html: Arc<str>,
    /// The frames in it: their URLs and names.
    frames: Vec<(Url, Box<str>)>,
}

/// A field of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormField {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Whether the request gives it.
    pub is_given: bool,
}

/// What an element leads to.
#[derive(Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The URL.
    pub url: Url,
    /// GET or POST.
    pub method: &'static str,
    /// The fields of a form; none for a link.
    pub fields: Option<Vec<FormField>>,
    /// Whether its fields are sent as multipart/form-data.
    pub is_multipart: bool,
    /// The frame that the next page is for.
    pub frame: Box<str>,
}

impl Pages {
    /// Takes a page for a frame, in place of the one that was there. One for a frame that is not there is for the window, and
    /// all frames go with the page that was in that.
    pub fn replace(&mut self, frame: &str, url: &Url, html: &str) {
        if frame.is_empty() || !self.0.iter().any(|page| &*page.frame == frame) {
            self.0.clear();
            self.push("", url, html);
        } else {
            self.0.retain(|page| &*page.frame != frame);
            self.push(frame, url, html);
        }
    }

    /// Takes the page of a frame that one of the pages names; returns whether one does.
    pub fn add_frame(&mut self, asked: &Url, url: &Url, html: &str) -> bool {
        let mut frames = self.0.iter().flat_map(|page| &page.frames);
        let name = frames.find(|(source, _)| source == asked).map(|(_, name)| name.clone());
        let Some(name) = name else { return false };
        self.0.retain(|page| page.frame != name);
        self.push(&name, url, html)
    }

    fn push(&mut self, frame: &str, url: &Url, html: &str) -> bool {
        let fits = self.0.len() < MAX_PAGES && self.memory_bytes() + html.len() <= MAX_BYTES;
        if fits {
            let frames = frames(frame, url, html);
            self.0.push(Page { frame: frame.into(), url: url.clone(), html: html.into(), frames });
        }
        fits
    }

    /// Finds the element of a number, from 1, among those that have something.
    ///
    /// # Errors
    /// There are fewer, or it leads nowhere.
    pub fn find(&self, kind: PageElementKind, has: &[(String, String)], number: usize) -> Result<Chosen, Fault> {
        let (mut left, steps) = (number.max(1), Steps::default());
        for page in &self.0 {
            let document = Document::read(&page.html);
            for (place, element) in document.elements() {
                if !is_kind(kind, element) || !matches(&document, (place, element), has, &steps)? {
                    continue;
                }
                left -= 1;
                if left == 0 {
                    return page.lead(&document, kind, place);
                }
            }
        }
        let named: Vec<String> = has.iter().map(|(name, value)| format!("{name} `{value}`")).collect();
        let what = format!("{kind:?}").to_lowercase();
        let with = if named.is_empty() { String::new() } else { format!(" with {}", named.join(" and ")) };
        let pages = self.0.len();
        fault("element_not_found", format!("the last {pages} pages have no {what}{with}, number {number}"))
    }

    /// The memory that they occupy, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.0.iter().map(|page| page.html.len() + page.frame.len() + size_of::<Page>()).sum()
    }
}

/// The frames of a page.
fn frames(frame: &str, url: &Url, html: &str) -> Vec<(Url, Box<str>)> {
    let document = Document::read(html);
    let elements = document.elements().filter(|(_, one)| matches!(one.name.as_str(), "frame" | "iframe"));
    let named = elements.filter_map(|(number, one)| {
        let source = joined(url, one.attribute("src")?)?;
        let name = one.attribute("name").filter(|name| !name.is_empty());
        Some((source, name.map_or_else(|| format!("{frame}#{number}").into(), Box::from)))
    });
    named.take(MAX_PAGES).collect()
}

impl Page {
    /// Follows an element.
    fn lead(&self, document: &Document, kind: PageElementKind, place: u32) -> Result<Chosen, Fault> {
        let mut at = Some(place);
        while let Some(number) = at {
            let Some(element) = document.element(number) else { break };
            match element.name.as_str() {
                "a" | "area" if kind != PageElementKind::Form => {
                    let url = self.url(document, element.attribute("href"))?;
                    let frame = self.frame(document, element);
                    return Ok(Chosen { url, method: "GET", fields: None, is_multipart: false, frame });
                }
                "form" => return self.submit(document, (number, element), place),
                _ => at = element.parent,
            }
        }
        fault("element_not_found", "the image is neither in a link nor in a form")
    }

    fn url(&self, document: &Document, reference: Option<&str>) -> Result<Url, Fault> {
        let based = document.elements().find(|(_, one)| one.name == "base");
        let base = based.and_then(|(_, one)| joined(&self.url, one.attribute("href")?));
        let base = base.as_ref().unwrap_or(&self.url);
        let Some(reference) = reference.filter(|reference| !reference.trim().is_empty()) else {
            return Ok(base.clone());
        };
        match joined(base, reference) {
            Some(url) => Ok(url),
            None => fault("bad_url", format!("`{}` leads to no page", reference.chars().take(200).collect::<String>())),
        }
    }

    /// The frame that the element's page is for.
    fn frame(&self, document: &Document, element: &Element) -> Box<str> {
        let based = || document.elements().find(|(_, one)| one.name == "base")?.1.attribute("target");
        match element.attribute("target").or_else(based) {
            None | Some("" | "_self") => self.frame.clone(),
            Some("_top" | "_parent" | "_blank") => "".into(),
            Some(name) => name.into(),
        }
    }

    /// The form around an element; an image sends its place too.
    fn submit(&self, document: &Document, (number, form): (u32, &Element), place: u32) -> Result<Chosen, Fault> {
        let url = self.url(document, form.attribute("action"))?;
        let is_post = form.attribute("method").is_some_and(|method| method.trim().eq_ignore_ascii_case("post"));
        let mut fields = fields(document, number);
        if let Some(image) = document.element(place).filter(|_| place != number) {
            let before = image.attribute("name").filter(|name| !name.is_empty()).map(|name| format!("{name}."));
            for axis in ["x", "y"] {
                let name = format!("{}{axis}", before.as_deref().unwrap_or_default());
                fields.push(FormField { name, value: "0".to_owned(), is_given: false });
            }
        }
        let kind = form.attribute("enctype").unwrap_or_default();
        Ok(Chosen {
            url,
            method: if is_post { "POST" } else { "GET" },
            fields: Some(fields),
            is_multipart: kind.trim().eq_ignore_ascii_case("multipart/form-data"),
            frame: self.frame(document, form),
        })
    }
}

/// The fields that a form sends without a button.
fn fields(document: &Document, form: u32) -> Vec<FormField> {
    let end = document.element(form).map_or(form, |element| element.end);
    let mut found = collect(document, form, end);
    if found.is_empty() {
        // A form in a table ends with a part of that; its fields go on until the next form.
        let next = document.elements().find(|(number, one)| *number >= end && one.name == "form");
        found = collect(document, form, next.map_or(u32::MAX, |(number, _)| number));
    }
    found
}

/// Whether a form has a field or a button of a name.
fn has_field(document: &Document, form: u32, name: &str, steps: &Steps) -> Result<bool, Fault> {
    for (number, one) in document.elements() {
        steps.add(1);
        if number > form && one.name == "form" {
            break;
        }
        if number > form && one.attribute("name") == Some(name) {
            return Ok(true);
        }
    }
    steps.check()?;
    Ok(false)
}

fn collect(document: &Document, from: u32, end: u32) -> Vec<FormField> {
    let mut found = Vec::new();
    for (number, element) in document.elements().filter(|(number, _)| (from + 1..end).contains(number)) {
        let Some(name) = element.attribute("name").filter(|name| !name.is_empty()) else { continue };
        if element.attribute("disabled").is_some() {
            continue;
        }
        let attribute = |name: &str| element.attribute(name).map(str::to_owned);
        let value = match element.name.as_str() {
            "input" => match attribute("type").unwrap_or_default().to_ascii_lowercase().as_str() {
                "submit" | "image" | "button" | "reset" | "file" => None,
                "checkbox" | "radio" => {
                    element.attribute("checked").map(|_| attribute("value").unwrap_or_else(|| "on".to_owned()))
                }
                _ => Some(attribute("value").unwrap_or_default()),
            },
            "textarea" => Some(document.text(number, &Steps::default()).unwrap_or_default()),
            "select" => selected(document, number),
            _ => None,
        };
        if let Some(value) = value {
            found.push(FormField { name: name.to_owned(), value, is_given: false });
        }
    }
    found
}

/// The chosen option of a list, or its first one.
fn selected(document: &Document, list: u32) -> Option<String> {
    let end = document.element(list)?.end;
    let is_option = |(number, one): &(u32, &Element)| (list + 1..end).contains(number) && one.name == "option";
    let options: Vec<_> = document.elements().filter(is_option).collect();
    let chosen = options.iter().find(|(_, one)| one.attribute("selected").is_some()).or(options.first())?;
    let text = || document.text(chosen.0, &Steps::default()).unwrap_or_default();
    Some(chosen.1.attribute("value").map_or_else(text, str::to_owned))
}

fn is_kind(kind: PageElementKind, element: &Element) -> bool {
    match kind {
        PageElementKind::Link => matches!(element.name.as_str(), "a" | "area") && element.attribute("href").is_some(),
        PageElementKind::Form => element.name == "form",
        PageElementKind::Image => {
            let is_input = element.name == "input"
                && element.attribute("type").is_some_and(|kind| kind.eq_ignore_ascii_case("image"));
            element.name == "img" || is_input
        }
    }
}

fn matches(
    document: &Document,
    (place, element): (u32, &Element),
    has: &[(String, String)],
    steps: &Steps,
) -> Result<bool, Fault> {
    steps.add(1);
    steps.check()?;
    for (name, wanted) in has {
        let wanted = wanted.trim();
        let is_same = match name.as_str() {
            "text" => document.text(place, steps)? == wanted.split_whitespace().collect::<Vec<_>>().join(" "),
            "field" => has_field(document, place, wanted, steps)?,
            "src" | "href" | "action" => element.attribute(name).is_some_and(|own| is_same_url(own.trim(), wanted)),
            _ => element.attribute(name).is_some_and(|own| own.trim() == wanted),
        };
        if !is_same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether two URLs are the same, or one is the end of the other's path.
fn is_same_url(one: &str, two: &str) -> bool {
    let is_end = |long: &str, short: &str| {
        let rest = long.strip_suffix(short);
        !short.is_empty() && rest.is_some_and(|rest| short.starts_with('/') || rest.ends_with('/'))
    };
    one == two || is_end(one, two) || is_end(two, one)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MENU: &str =
        "<a href=/home target=body>Home</a><a href='signoff.pl'><img src=/images/off.gif alt='Sign Off'></a>";
    const LOGIN: &str = "<form method=POST action=login.pl target=body><input type=hidden name=s value='1&amp;2'>\
        <table><tr><td><input name=user size=14 maxlength=14><input type=password name=word></td></tr></table>\
        <input type=checkbox name=no><input type=radio name=r value=a checked><select name=c><option>x<option selected>y y\
        </select><textarea name=t>long</textarea><input type=image name=go src=i/go.gif alt=Go></form>";

    fn pages() -> Pages {
        let mut pages = Pages::default();
        let url = |text: &str| Url::parse(text).unwrap();
        pages.replace("", &url("http://a.test/x/top"), "<frameset><frame src=menu name=menu><frame src=in name=body>");
        assert!(pages.add_frame(&url("http://a.test/x/menu"), &url("http://a.test/x/menu"), MENU));
        assert!(pages.add_frame(&url("http://a.test/x/in"), &url("http://a.test/y/in"), LOGIN));
        assert!(!pages.add_frame(&url("http://a.test/x/other"), &url("http://a.test/x/other"), MENU));
        pages
    }

    fn has(name: &str, value: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), value.to_owned())]
    }

    #[test]
    fn links_lead_to_their_pages_and_frames() {
        let pages = pages();
        let home = pages.find(PageElementKind::Link, &has("text", "Home"), 1).unwrap();
        assert_eq!((home.url.absolute().as_str(), &*home.frame), ("http://a.test/home", "body"));
        let off = pages.find(PageElementKind::Image, &has("alt", "Sign Off"), 1).unwrap();
        assert_eq!(
            (off.url.absolute().as_str(), off.method, &*off.frame),
            ("http://a.test/x/signoff.pl", "GET", "menu")
        );
        let by_end = pages.find(PageElementKind::Image, &has("src", "http://a.test/images/off.gif"), 1).unwrap();
        assert_eq!(by_end.url, off.url);
        assert_eq!(pages.find(PageElementKind::Link, &[], 3).unwrap_err().cause, "element_not_found");
    }

    #[test]
    fn forms_send_what_they_have() {
        let form = pages().find(PageElementKind::Form, &has("action", "login.pl"), 1).unwrap();
        assert_eq!(
            (form.url.absolute().as_str(), form.method, &*form.frame),
            ("http://a.test/y/login.pl", "POST", "body")
        );
        let fields: Vec<_> =
            form.fields.unwrap().into_iter().map(|one| format!("{}={}", one.name, one.value)).collect();
        assert_eq!(fields, ["s=1&2", "user=", "word=", "r=a", "c=y y", "t=long"]);
        assert!(pages().find(PageElementKind::Form, &has("field", "word"), 1).is_ok());
        assert!(pages().find(PageElementKind::Form, &has("field", "words"), 1).is_err());
        let go = pages().find(PageElementKind::Image, &has("alt", "Go"), 1).unwrap().fields.unwrap();
        assert_eq!(go[go.len() - 2].name, "go.x");
    }

    #[test]
    fn page_for_a_frame_leaves_the_others() {
        let mut pages = pages();
        let url = Url::parse("http://a.test/next").unwrap();
        pages.replace("body", &url, "<a href=/more>More</a>");
        assert!(pages.find(PageElementKind::Link, &has("text", "More"), 1).is_ok());
        assert!(pages.find(PageElementKind::Link, &has("text", "Home"), 1).is_ok());
        assert!(pages.find(PageElementKind::Form, &[], 1).is_err());
        pages.replace("", &url, "<a href=/more>More</a>");
        assert!(pages.find(PageElementKind::Link, &has("text", "Home"), 1).is_err());
    }
}
