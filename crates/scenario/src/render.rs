//! Makes the bytes of a request from its templates: URL, header fields, body. Owns which fields are added, and refuses
//! what would change the meaning of a request (line breaks in fields, other schemes). What follows a redirect, and the
//! resources of a page, are made of the bytes that were sent: templates are evaluated once for each request.

use std::ops::Range;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use leadline_http::Url;

use super::browser::cookies::Destination;
use super::browser::pages::{Chosen, FormField};
use super::encoding::{append_form, append_target, has_control};
use super::evaluate::Context;
use super::fault::{fault, Fault};
use super::outgoing::Outgoing;
use super::program::{Body, BodyPart, Element, Parameter, Request, Template};

/// What follows a redirect: its URL, and whether the method becomes GET.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// The URL.
    pub url: Url,
    /// Whether the method becomes GET without a body.
    pub becomes_get: bool,
}

/// Makes a request, and says which frame its page is for. One without variables is made once.
pub fn render(context: &mut Context<'_>, request: &Request) -> Result<(Outgoing, Box<str>), Fault> {
    match &request.element {
        None => Ok((render_written(context, request)?, "".into())),
        Some(element) => {
            let chosen = choose(context, element)?;
            let frame = chosen.frame.clone();
            Ok((make(context, request, Some(chosen))?, frame))
        }
    }
}

fn render_written(context: &mut Context<'_>, request: &Request) -> Result<Outgoing, Fault> {
    if !request.is_constant || (request.cookies && !context.user.jar.is_empty()) {
        return make(context, request, None);
    }
    if let Some(made) = request.made.get() {
        return Ok(made.clone());
    }
    let made = make(context, request, None)?;
    Ok(request.made.get_or_init(|| made).clone())
}

/// Finds the element that gives a request its URL.
fn choose(context: &mut Context<'_>, element: &Element) -> Result<Chosen, Fault> {
    let mut has = Vec::new();
    for (name, value) in &element.has {
        has.push((context.text(name)?, context.text(value)?));
    }
    let number = context.number(&element.number)?.max(1.0) as usize;
    context.user.pages.find(element.kind, &has, number)
}

fn make(context: &mut Context<'_>, request: &Request, chosen: Option<Chosen>) -> Result<Outgoing, Fault> {
    let method = match &chosen {
        Some(chosen) => chosen.method.to_owned(),
        None => context.text(&request.method)?,
    };
    if method.is_empty()
        || !method.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        || method == "CONNECT"
    {
        return fault("bad_request", format!("`{method}` is not a request method"));
    }
    let (url, body, content_type) = match chosen {
        Some(chosen) => submitted(context, request, chosen)?,
        None => {
            let url = url(context, request)?;
            let (body, content_type) = body(context, &request.body)?;
            (url, body, content_type)
        }
    };
    check_target(context, &url)?;
    let mut head = String::with_capacity(256);
    push_request_line(&method, &url, &mut head);
    let mut fields_at = head.len();
    let has = fields(context, request, &mut head)?;
    if !has.host {
        let host = format!("Host: {}\r\n", url.authority());
        head.insert_str(fields_at, &host);
        fields_at += host.len();
    }
    if let Some(content_type) = content_type.filter(|_| !has.content_type) {
        head.push_str(&format!("Content-Type: {content_type}\r\n"));
    }
    let kept_fields = fields_at..head.len();
    if let Some((user, password)) = &request.basic {
        let pair = format!("{}:{}", context.text(user)?, context.text(password)?);
        head.push_str(&format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode(pair)));
    }
    let credentials = kept_fields.end..head.len();
    let begun = Begun { method: &method, url, head, kept_fields, credentials, has };
    Ok(finish(context, request, begun, body.as_deref()))
}

/// Makes the request after a redirect, or that of a page's resource, of the one before. Header fields that say who asks
/// go to the same scheme, host and port only, as those of browsers, curl and k6 do, unless the request says otherwise.
pub fn render_next(
    context: &mut Context<'_>,
    request: &Request,
    before: &Outgoing,
    redirect: Redirect,
) -> Result<Outgoing, Fault> {
    let Redirect { url, becomes_get } = redirect;
    check_target(context, &url)?;
    let sent = &before.bytes;
    let head_end = sent.windows(4).position(|four| four == b"\r\n\r\n").map_or(sent.len(), |end| end + 4);
    let method = String::from_utf8_lossy(sent.split(|byte| *byte == b' ').next().unwrap_or_default());
    let body = (!becomes_get && head_end < sent.len()).then(|| &sent[head_end..]);
    let method = if becomes_get && method != "HEAD" { "GET".into() } else { method };
    let is_same_origin = url.origin() == before.url.origin();
    let (mut kept, mut has) = (String::new(), Has::default());
    for line in String::from_utf8_lossy(&sent[before.kept_fields.clone()]).split_inclusive("\r\n") {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        let is_personal = matches!(name.as_str(), "authorization" | "proxy-authorization" | "cookie" | "host");
        let stays = is_personal && !is_same_origin && !request.keeps_headers_elsewhere;
        if stays || (becomes_get && name == "content-type") {
            continue;
        }
        has.note(&name);
        kept.push_str(line);
    }
    let mut head = String::with_capacity(256);
    push_request_line(&method, &url, &mut head);
    if !has.host {
        head.push_str(&format!("Host: {}\r\n", url.authority()));
    }
    let fields_at = head.len();
    head.push_str(&kept);
    let kept_fields = fields_at..head.len();
    if is_same_origin {
        head.push_str(&String::from_utf8_lossy(&sent[before.credentials.clone()]));
    }
    let credentials = kept_fields.end..head.len();
    Ok(finish(context, request, Begun { method: &method, url, head, kept_fields, credentials, has }, body))
}

fn check_target(context: &Context<'_>, url: &Url) -> Result<(), Fault> {
    let targets = &context.program.targets;
    if !targets.is_empty() && !targets.contains(&url.origin()) {
        return fault("target_not_allowed", format!("{} is none of the plan's targets", url.origin()));
    }
    Ok(())
}

fn push_request_line(method: &str, url: &Url, head: &mut String) {
    for part in [method, " ", &url.target, " HTTP/1.1\r\n"] {
        head.push_str(part);
    }
}

/// A request that lacks the fields that are made for each URL, and its body.
struct Begun<'m> {
    method: &'m str,
    url: Url,
    head: String,
    kept_fields: Range<usize>,
    credentials: Range<usize>,
    has: Has,
}

fn finish(context: &mut Context<'_>, request: &Request, begun: Begun<'_>, body: Option<&[u8]>) -> Outgoing {
    let Begun { method, url, mut head, kept_fields, credentials, has } = begun;
    if request.cookies && !context.user.jar.is_empty() {
        let now_s = context.tools.epoch_ms(context.now_ns).div_euclid(1000);
        let mut cookies = String::new();
        context.user.jar.send(&Destination::of(&url, now_s), &mut cookies);
        if !cookies.is_empty() {
            head.push_str(&format!("Cookie: {cookies}\r\n"));
        }
    }
    if request.closes && !has.connection {
        head.push_str("Connection: close\r\n");
    }
    match body {
        Some(body) => head.push_str(&format!("Content-Length: {}\r\n", body.len())),
        None if matches!(method, "POST" | "PUT" | "PATCH") => head.push_str("Content-Length: 0\r\n"),
        None => {}
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body.unwrap_or_default());
    let is_idempotent = matches!(method, "GET" | "HEAD" | "PUT" | "DELETE" | "OPTIONS" | "TRACE");
    Outgoing {
        url,
        bytes: bytes.into(),
        kept_fields,
        credentials,
        is_head: method == "HEAD",
        is_idempotent,
        closes: request.closes,
    }
}

/// Which fields a request has by itself.
#[derive(Default)]
struct Has {
    host: bool,
    content_type: bool,
    connection: bool,
}

impl Has {
    /// Notes a field, by its name in lower case.
    fn note(&mut self, name: &str) {
        match name {
            "content-type" => self.content_type = true,
            "host" => self.host = true,
            "connection" => self.connection = true,
            _ => {}
        }
    }
}

fn fields(context: &mut Context<'_>, request: &Request, head: &mut String) -> Result<Has, Fault> {
    let mut has = Has::default();
    for (name, value) in &request.headers {
        let (name, value) = (context.text(name)?, context.text(value)?);
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            return fault("bad_request", format!("`{name}` is not a header name"));
        }
        if has_control(&value) {
            return fault("bad_request", format!("the value of header `{name}` holds a control character"));
        }
        let lower = name.to_ascii_lowercase();
        // They are computed.
        if matches!(lower.as_str(), "content-length" | "transfer-encoding") {
            continue;
        }
        has.note(&lower);
        for part in [name.as_str(), ": ", value.trim(), "\r\n"] {
            head.push_str(part);
        }
    }
    Ok(has)
}

fn url(context: &mut Context<'_>, request: &Request) -> Result<Url, Fault> {
    let [scheme, host, port, path] = &request.url;
    let mut path = context.text(path)?;
    let trimmed = path.trim_start();
    let is_absolute = ["http://", "https://"]
        .iter()
        .any(|scheme| trimmed.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    if !request.query.is_empty() {
        let hash = path.find('#').map(|at| path.split_off(at));
        path.push(if path.contains('?') { '&' } else { '?' });
        parameters(context, &request.query, &mut path)?;
        drop(hash);
    }
    let mut text = String::with_capacity(path.len() + 40);
    if !is_absolute {
        let scheme = context.text(scheme)?;
        text.push_str(if scheme.is_empty() { "http" } else { scheme.trim() });
        text.push_str("://");
        text.push_str(context.text(host)?.trim());
        let port = context.text(port)?;
        if !port.trim().is_empty() {
            text.push(':');
            text.push_str(port.trim());
        }
        if !path.starts_with('/') {
            text.push('/');
        }
    }
    append_target(path.trim(), &mut text);
    match Url::parse(&text) {
        Ok(url) => Ok(url.with_lower_host()),
        Err(error) => fault("bad_url", error.to_string()),
    }
}

/// A URL, a body, and the body's type.
type Submitted = (Url, Option<Vec<u8>>, Option<String>);

/// Returns the URL of an element, and the body that its form has with the request's own fields.
fn submitted(context: &mut Context<'_>, request: &Request, chosen: Chosen) -> Result<Submitted, Fault> {
    let Some(mut fields) = chosen.fields else { return Ok((chosen.url, None, None)) };
    if let Body::Form(own) = &request.body {
        let mut given: Vec<(String, String)> = Vec::new();
        for one in own {
            let value = one.value.as_ref().map(|value| context.text(value)).transpose()?;
            given.push((context.text(&one.name)?, value.unwrap_or_default()));
        }
        // A field that is given several times replaces as many of the form, in order.
        for (name, value) in given {
            let place = fields.iter().position(|field| field.name == name && !field.is_given);
            match place {
                Some(place) => fields[place] = FormField { name, value, is_given: true },
                None => fields.push(FormField { name, value, is_given: true }),
            }
        }
    }
    if chosen.is_multipart && chosen.method == "POST" {
        let boundary = format!("leadline-{:016x}", context.user.random.next());
        let quoted = |text: &str| text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A");
        let mut out = String::new();
        for field in &fields {
            let name = quoted(&field.name);
            let head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
            for part in [&head, &field.value, "\r\n"] {
                out.push_str(part);
            }
        }
        out.push_str(&format!("--{boundary}--\r\n"));
        return Ok((chosen.url, Some(out.into_bytes()), Some(format!("multipart/form-data; boundary={boundary}"))));
    }
    let mut text = String::new();
    for (number, field) in fields.iter().enumerate() {
        if number > 0 {
            text.push('&');
        }
        append_form(&field.name, &mut text);
        text.push('=');
        append_form(&field.value, &mut text);
    }
    if chosen.method == "POST" {
        return Ok((chosen.url, Some(text.into_bytes()), Some("application/x-www-form-urlencoded".to_owned())));
    }
    let mut target = chosen.url.absolute();
    target.truncate(target.find('?').unwrap_or(target.len()));
    match Url::parse(&format!("{target}?{text}")) {
        Ok(url) => Ok((url, None, None)),
        Err(error) => fault("bad_url", error.to_string()),
    }
}

fn parameters(context: &mut Context<'_>, parameters: &[Parameter], out: &mut String) -> Result<(), Fault> {
    let append = |context: &mut Context<'_>, template: &Template, is_encoded: bool, out: &mut String| {
        if is_encoded {
            return context.append(template, out);
        }
        let text = context.text(template)?;
        append_form(&text, out);
        Ok(())
    };
    for (number, parameter) in parameters.iter().enumerate() {
        if number > 0 {
            out.push('&');
        }
        append(context, &parameter.name, parameter.is_encoded, out)?;
        if let Some(value) = &parameter.value {
            out.push('=');
            append(context, value, parameter.is_encoded, out)?;
        }
    }
    Ok(())
}

/// Returns the body, and its type if it has one by itself.
fn body(context: &mut Context<'_>, body: &Body) -> Result<(Option<Vec<u8>>, Option<String>), Fault> {
    Ok(match body {
        Body::None => (None, None),
        Body::Text(text) => (Some(context.text(text)?.into_bytes()), None),
        Body::File(content) => (Some(content.to_vec()), None),
        Body::Form(fields) => {
            let mut text = String::new();
            parameters(context, fields, &mut text)?;
            (Some(text.into_bytes()), Some("application/x-www-form-urlencoded".to_owned()))
        }
        Body::Multipart(parts) => {
            let boundary = format!("leadline-{:016x}", context.user.random.next());
            let body = multipart(context, parts, &boundary)?;
            (Some(body), Some(format!("multipart/form-data; boundary={boundary}")))
        }
    })
}

/// Returns the parts of a form (RFC 7578).
fn multipart(context: &mut Context<'_>, parts: &[BodyPart], boundary: &str) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    let quoted = |text: String| text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A");
    for part in parts {
        let name = quoted(context.text(&part.name)?);
        out.extend_from_slice(format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"").as_bytes());
        let file_name = quoted(context.text(&part.file_name)?);
        if !file_name.is_empty() {
            out.extend_from_slice(format!("; filename=\"{file_name}\"").as_bytes());
        }
        let content_type = context.text(&part.content_type)?;
        if !content_type.is_empty() {
            out.extend_from_slice(format!("\r\nContent-Type: {}", quoted(content_type)).as_bytes());
        }
        out.extend_from_slice(b"\r\n\r\n");
        match &part.file {
            Some(content) => out.extend_from_slice(content),
            None => out.extend_from_slice(context.text(&part.text)?.as_bytes()),
        }
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok(out)
}
