//! The resources of a page that a browser fetches with it: images, scripts, styles and frames. Owns which attributes
//! name them, and their bound.

use std::collections::HashSet;

use fancy_regex::Regex;
use leadline_http::Url;

use super::{Document, Element};
use crate::encoding::join;
/// The most resources of a page.
const MOST_RESOURCES: usize = 1000;
/// The longest reference that is followed, bytes. A long `base` would stand in the URL of each resource.
const LONGEST_REFERENCE_BYTES: usize = 8192;

/// Whether a response is HTML, by its header fields (lines `Name: value`).
pub fn is_html(head: &str) -> bool {
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    let mut types = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    types.next().is_some_and(|(_, value)| {
        let media = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        media == "text/html" || media == "application/xhtml+xml"
    })
}

/// Returns the URLs of a page's resources, each once, in order; only those that a pattern matches.
pub fn resources(html: &str, page: &Url, pattern: Option<&Regex>) -> Vec<Url> {
    let document = Document::read(html);
    let mut base = None;
    let mut found: Vec<Url> = Vec::new();
    let mut known: HashSet<Url> = HashSet::new();
    for (_, element) in document.elements() {
        if element.name == "base" && base.is_none() {
            base = element.attribute("href").and_then(|href| joined(page, href));
        }
        for reference in references(element) {
            let Some(url) = joined(base.as_ref().unwrap_or(page), reference) else { continue };
            let is_wanted = || pattern.is_none_or(|pattern| pattern.is_match(&url.absolute()).unwrap_or(false));
            if !known.contains(&url) && is_wanted() {
                known.insert(url.clone());
                found.push(url);
            }
        }
        if found.len() >= MOST_RESOURCES {
            break;
        }
    }
    found.truncate(MOST_RESOURCES);
    found
}

/// Returns the URL of a reference in a page; `None` for what leads to no server.
pub fn joined(base: &Url, reference: &str) -> Option<Url> {
    let reference = reference.trim();
    let reference = reference.split('#').next().unwrap_or_default();
    let scheme = reference.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    let is_other = scheme.is_some_and(|scheme| {
        scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !matches!(scheme.as_str(), "http" | "https")
    });
    if reference.is_empty() || reference.len() > LONGEST_REFERENCE_BYTES || is_other {
        return None;
    }
    join(base, reference)
}

fn references(element: &Element) -> impl Iterator<Item = &str> {
    let attribute = match element.name.as_str() {
        "img" | "script" | "iframe" | "frame" | "embed" | "bgsound" => "src",
        "input" if element.attribute("type").is_some_and(|kind| kind.eq_ignore_ascii_case("image")) => "src",
        "link" if is_fetched_link(element) => "href",
        "object" => "data",
        "body" | "table" | "tr" | "td" | "th" => "background",
        _ => "",
    };
    let style = element.attribute("style").unwrap_or_default();
    element.attribute(attribute).into_iter().chain(style_urls(style))
}

fn is_fetched_link(element: &Element) -> bool {
    let rel = element.attribute("rel").unwrap_or_default();
    rel.split_ascii_whitespace().any(|one| ["stylesheet", "icon"].iter().any(|kind| one.eq_ignore_ascii_case(kind)))
}

/// The URLs in `url(...)`.
fn style_urls(style: &str) -> impl Iterator<Item = &str> {
    style
        .split("url(")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .map(|url| url.trim().trim_matches(['"', '\'']))
}

#[cfg(test)]
mod tests {
    use fancy_regex::Regex;
    use leadline_http::Url;

    use super::{is_html, resources, LONGEST_REFERENCE_BYTES};

    #[test]
    fn resources_are_found_once_in_order() {
        let html = "<head><link rel='Stylesheet' href=a.css><link rel=next href=n.html><script src='/s.js'></script>\
            <script>var a = \"<img src='no.png'>\"</script></head><body background=//b.test/b.png>\
            <img src=i.png><img src='i.png'><img src='data:image/png;base64,AA'><img src=''>\
            <input type=image src=c.png><input type=text src=no.png><div style=\"background: url('d.png')\"></div>\
            <a href=no.html>x</a><!-- <img src=no.png> --></body>";
        let page = Url::parse("http://a.test/x/page?q=1").unwrap();
        let found = |pattern: Option<&str>| {
            let pattern = pattern.map(|pattern| Regex::new(&format!(r"\A(?:{pattern})\z")).unwrap());
            let urls = resources(html, &page, pattern.as_ref());
            urls.iter().map(Url::absolute).collect::<Vec<_>>().join(" ").replace("http://a.test", "")
        };
        assert_eq!(found(None), "/x/a.css /s.js http://b.test/b.png /x/i.png /x/c.png /x/d.png");
        assert_eq!(found(Some(r".*a\.test.*\.png")), "/x/i.png /x/c.png /x/d.png");
        let based = resources("<base href='/other/'><img src=i.png>", &page, None);
        assert_eq!(based[0].absolute(), "http://a.test/other/i.png");
    }

    #[test]
    fn long_references_are_left_out() {
        let page = Url::parse("http://a.test/").unwrap();
        let fits = "b".repeat(LONGEST_REFERENCE_BYTES - 1);
        let html = format!("<base href='/{fits}b/'><img src=i.png><img src='{fits}b'><img src='{fits}bb'>");
        let found: Vec<String> = resources(&html, &page, None).iter().map(Url::absolute).collect();
        assert_eq!(found, ["http://a.test/i.png".to_owned(), format!("http://a.test/{fits}b")]);
    }

    #[test]
    fn type_names_html() {
        assert!(is_html("Server: x\nContent-Type: Text/HTML; charset=utf-8\n"));
        assert!(!is_html("Content-Type: application/json\n"));
        assert!(!is_html(""));
    }
}
