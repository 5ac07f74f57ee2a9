//! Any response and any text of a plan end in a figure, never in a panic.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::browser::html::{self, selector};
use crate::{calendar, encoding, search};

proptest! {
    #[test]
    fn any_response_is_judged(body in ".{0,200}", head in "[ -~\n]{0,200}", status in 200u16..600) {
        let extractor = |find: Json| json!({"variable": "x", "subject": {"kind": "body"}, "find": find,
            "pick": {"kind": "all"}, "on_miss": {"kind": "keep"}, "sets_groups": true});
        let extractors = [
            json!({"kind": "regex", "pattern": ["(.)(a|b)?"]}), json!({"kind": "json_path", "path": ["$..*"]}),
            json!({"kind": "boundary", "left": ["a"], "right": ["b"]}), json!({"kind": "header", "name": ["x"]}),
            json!({"kind": "css", "selector": ["p > *, [a]:not(b)"]}),
        ].map(extractor);
        let request = json!({"action": {"kind": "request", "method": ["GET"], "host": ["a.test"], "path": ["/"],
            "redirects": 2, "uses_cookies": true, "uses_cache": true, "embedded": {"at_once": 2},
            "extractors": extractors}});
        let head = head.replace('\n', "\nSet-Cookie: ") + "\nContent-Type: text/html\n";
        let head: &'static str = Box::leak(head.into_boxed_str());
        let run = run(plan(once(), json!([request])), |_| Some(Response { status, head, ..ok(body.clone()) }));
        prop_assert_eq!(run.figures.labels[0].ended, 1);
    }

    #[test]
    fn any_text_is_searched_and_encoded(text in ".{0,80}", other in ".{0,8}") {
        let _ = calendar::format(&text, 0);
        let _ = search::json_path(&text);
        let (document, steps) = (html::Document::read(&other), html::steps::Steps::default());
        let _ = selector::Selector::parse(&text).map(|found| found.find(&document, &steps).is_ok());
        let _ = search::between(&text, &other, &other);
        prop_assert_eq!(encoding::form_decode(&encoding::form_encode(&text)), text);
    }
}
