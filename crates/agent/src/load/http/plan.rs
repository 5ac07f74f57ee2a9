//! The plan of a load: everything that its connections have in common, made of its specification. Owns every check of
//! the specification, so that later steps cannot fail because of a bad value. Resolves names once, unless each
//! connection is to do so itself.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use leadline_http::client::{RequestSource, Settings};
use leadline_http::{RequestSet, Url};
use leadline_pace::{Stage, Stages};
use leadline_sys::clock::monotonic_ns;
use leadline_sys::connect::Remote;
use leadline_wire::{DnsPolicy, ErrorReport, HttpRequest, HttpSpec};

use crate::events::input_error;
use crate::load::net::dialler::Dialler;
use crate::load::net::names::{look_up, Addresses, Name, Names};
use crate::load::net::options::client_tls;

/// The common part of a load's connections.
pub struct Plan {
    /// Requests, limits and TLS, in the form that connections use.
    pub settings: Arc<Settings>,
    /// The route to the server.
    pub route: Route,
    /// When requests are due; a closed loop if absent.
    pub stages: Option<Stages>,
}

/// The route from a connection to its server.
pub struct Route {
    /// The destination.
    pub destination: Destination,
    /// How names are resolved.
    pub names: Arc<Names>,
    /// How connections begin.
    pub dialler: Dialler,
}

/// The destination of connections.
pub enum Destination {
    /// An address that was resolved before the start.
    Resolved(Remote, Option<Lookup>),
    /// A name that each connection resolves.
    PerConnection(Name),
}

/// The result of a name's resolution.
pub struct Lookup {
    /// How long the query took, ns.
    pub took_ns: u64,
    /// Its addresses; connections use the first one.
    pub addresses: Addresses,
}

impl std::fmt::Display for Route {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.destination {
            Destination::Resolved(remote, _) => remote.fmt(formatter),
            Destination::PerConnection((host, port)) => write!(formatter, "{host}:{port}"),
        }
    }
}

impl Plan {
    /// Checks the specification, and resolves its names.
    pub fn new(spec: &HttpSpec) -> Result<Self, ErrorReport> {
        let timeouts = &spec.timeouts;
        if [spec.connections, spec.threads, timeouts.response_ms, timeouts.connect_ms].contains(&0) {
            return Err(input_error("bad_http", "connections, threads and timeouts have to be at least 1"));
        }
        if spec.requests_per_connection == Some(0) {
            return Err(input_error("bad_http", "requests_per_connection has to be at least 1"));
        }
        if spec.script.is_some() && spec.redirects > 0 {
            return Err(input_error(
                "bad_http",
                "redirects of a script's requests are not followed; set redirects to 0",
            ));
        }
        let proxy = spec.route.proxy.as_deref().map(Proxy::parse).transpose()?;
        let sources = spec.requests.iter().map(|request| source(request, spec, proxy.as_ref()));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let Some(RequestSource { url: origin, .. }) = sources.first() else {
            return Err(input_error("bad_http", "there is no request"));
        };
        if let Some(other) = sources.iter().find(|source| !source.url.has_origin_of(origin)) {
            let (other, origin) = (other.url.absolute(), origin.authority());
            return Err(input_error(
                "bad_url",
                format!("{other} is on another server than {origin}; a load has one server"),
            ));
        }
        let templates = sources
            .iter()
            .zip(&spec.requests)
            .map(|(source, request)| source.template().map(|template| (template, request.weight)));
        let templates =
            templates.collect::<Result<Vec<_>, _>>().map_err(|error| input_error("bad_request", error.to_string()))?;
        let requests = RequestSet::new(templates).map_err(|error| input_error("bad_request", error.to_string()))?;
        let route = route(spec, origin, proxy.as_ref())?;
        let settings = Settings {
            payload: requests.payload().into(),
            requests,
            server: route.to_string(),
            proxy_request: proxy.as_ref().filter(|_| origin.is_https).map(|proxy| proxy.connect_request(origin)),
            tls: origin.is_https.then(|| client_tls(spec.tls.as_ref(), &origin.host, spec.connections)).transpose()?,
            connect_timeout_ns: u64::from(timeouts.connect_ms) * 1_000_000,
            response_timeout_ns: u64::from(timeouts.response_ms) * 1_000_000,
            requests_per_connection: spec.requests_per_connection,
            redirects: spec.redirects,
            is_open_loop: !spec.rate.is_empty(),
            sources,
        };
        Ok(Self { settings: Arc::new(settings), route, stages: stages(spec)? })
    }

    /// Replaces the specified requests by these, and the resolved address by `address` if there is one.
    pub fn replace_requests(&mut self, requests: RequestSet, address: Option<SocketAddr>) {
        if let (Some(address), Destination::Resolved(Remote::Inet(resolved), _)) =
            (address, &mut self.route.destination)
        {
            *resolved = address;
        }
        let server = self.route.to_string();
        let settings = Arc::make_mut(&mut self.settings);
        (settings.payload, settings.server) = (requests.payload().into(), server);
        settings.requests = requests;
    }
}

fn source(request: &HttpRequest, spec: &HttpSpec, proxy: Option<&Proxy>) -> Result<RequestSource, ErrorReport> {
    let url = Url::parse(&request.url).map_err(|error| input_error("bad_url", error.to_string()))?;
    let body = request.body_base64.as_deref().map(|text| BASE64_STANDARD.decode(text)).transpose();
    let body = body.map_err(|error| input_error("bad_body", format!("body_base64: {error}")))?;
    let is_proxied = proxy.is_some() && !url.is_https;
    let mut headers: Vec<(String, String)> =
        request.headers.iter().map(|header| (header.name.clone(), header.value.clone())).collect();
    if let (true, Some(Proxy { authorization: Some(value), .. })) = (is_proxied, proxy) {
        headers.push(("Proxy-Authorization".to_owned(), value.clone()));
    }
    let has_connection_header = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("connection"));
    if spec.requests_per_connection == Some(1) && !has_connection_header {
        headers.push(("Connection".to_owned(), "close".to_owned()));
    }
    Ok(RequestSource { url, method: request.method.clone(), headers, body: body.map(Arc::from), is_proxied })
}

struct Proxy {
    url: Url,
    authorization: Option<String>,
}

impl Proxy {
    fn parse(text: &str) -> Result<Self, ErrorReport> {
        // The text may hold a password; no message repeats it.
        let bad =
            |what: &str| input_error("bad_proxy", format!("proxy: {what}; write http://[USER:PASSWORD@]HOST:PORT"));
        let rest = text.strip_prefix("http://").ok_or_else(|| bad("it does not begin with http://"))?;
        let (user, host) = rest.rsplit_once('@').map_or((None, rest), |(user, host)| (Some(user), host));
        let url = Url::parse(&format!("http://{host}")).map_err(|error| bad(&error.to_string()))?;
        let authorization = user.map(|user| format!("Basic {}", BASE64_STANDARD.encode(user)));
        Ok(Self { url, authorization })
    }

    /// Returns the request for a tunnel (RFC 9110, 9.3.6).
    fn connect_request(&self, origin: &Url) -> Vec<u8> {
        let to = origin.host_and_port();
        let authorization = self.authorization.as_ref();
        let authorization = authorization.map_or(String::new(), |value| format!("Proxy-Authorization: {value}\r\n"));
        format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{authorization}\r\n").into_bytes()
    }
}

fn route(spec: &HttpSpec, origin: &Url, proxy: Option<&Proxy>) -> Result<Route, ErrorReport> {
    let route = &spec.route;
    let names = Names::new(&route.resolve, spec.ip_version)?;
    let next_hop = proxy.map_or(origin, |proxy| &proxy.url);
    let destination = match &route.unix_socket {
        Some(_) if proxy.is_some() => {
            return Err(input_error("bad_http", "a proxy is not reached over unix_socket; specify one of them"));
        }
        Some(path) => Destination::Resolved(Remote::Unix(PathBuf::from(path)), None),
        None => destination(spec, &names, next_hop)?,
    };
    Ok(Route { destination, names: Arc::new(names), dialler: Dialler::new(&route.bind, &spec.socket)? })
}

fn destination(spec: &HttpSpec, names: &Names, url: &Url) -> Result<Destination, ErrorReport> {
    let name = (Arc::clone(&url.host), url.port);
    if let Some(known) = names.known(&name) {
        // An address of another family than the required one is refused.
        let address = look_up(&known.ip().to_string(), known.port(), spec.ip_version)?.first();
        return Ok(Destination::Resolved(Remote::Inet(address), None));
    }
    let began_ns = monotonic_ns();
    let addresses = names.look_up(&name)?;
    let (took_ns, first) = (monotonic_ns() - began_ns, addresses.first());
    Ok(match spec.route.dns {
        DnsPolicy::Run => Destination::Resolved(Remote::Inet(first), Some(Lookup { took_ns, addresses })),
        DnsPolicy::Connection => Destination::PerConnection(name),
    })
}

fn stages(spec: &HttpSpec) -> Result<Option<Stages>, ErrorReport> {
    if spec.rate.is_empty() {
        return Ok(None);
    }
    let stages = spec.rate.iter().map(|stage| Stage {
        from_per_s: stage.from_per_s,
        to_per_s: stage.to_per_s,
        duration_ns: stage.duration_ms.saturating_mul(1_000_000),
    });
    Stages::new(stages).map(Some).map_err(|error| input_error("bad_rate", format!("rate: {error}")))
}
