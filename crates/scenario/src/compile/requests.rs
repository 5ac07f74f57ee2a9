//! Compiles requests with their extractors and checks.

use std::sync::Arc;

use leadline_wire::scenario::{self as ir, CheckTest, LabelKind, MissRule, RequestBody, ScenarioRequest, TemplatePart};

use super::state::{CompileError, Compiler};
use crate::browser::html::selector::Selector;
use crate::program::{
    Body, BodyPart, Check, Element, Embedded, Extractor, Find, Miss, Parameter, Pick, Request, Subject, Template, Test,
};
use crate::search::regex;

impl Compiler {
    /// Compiles a request; returns its index.
    pub fn request(&mut self, label: Option<&str>, request: &ScenarioRequest) -> Result<u32, CompileError> {
        let name = label.map_or_else(|| default_label(request), str::to_owned);
        let label = self.label(&name, LabelKind::Request);
        let url = [
            self.template(&request.scheme)?,
            self.template(&request.host)?,
            self.template(&request.port)?,
            self.template(&request.path)?,
        ];
        let mut headers = Vec::new();
        for header in &request.headers {
            headers.push((self.template(&header.name)?, self.template(&header.value)?));
        }
        let element = request.element.as_ref().map(|element| self.element(element)).transpose()?;
        let basic = request.basic_credentials.as_ref();
        let basic =
            basic.map(|basic| Ok((self.template(&basic.user)?, self.template(&basic.password)?))).transpose()?;
        let extractors = self.each(&request.extractors, Self::extractor)?;
        let checks = self.each(&request.checks, |compiler, one| compiler.check(label, one))?;
        let subjects = || extractors.iter().map(|one| &one.subject).chain(checks.iter().map(|one| &one.subject));
        let reads_json = checks.iter().flat_map(|check| &check.tests).any(|test| matches!(test, Test::Json(..)));
        let embedded = request.embedded.as_ref().map(|rule| self.embedded(rule)).transpose()?;
        let needs_head = request.redirects > 0
            || request.uses_cookies
            || request.uses_cache
            || subjects().any(|subject| matches!(subject, Subject::Answer | Subject::Headers | Subject::Reason))
            || extractors.iter().any(|one| matches!(one.find, Find::Header(_)));
        let needs_body = reads_json
            || embedded.is_some()
            || subjects().any(|subject| matches!(subject, Subject::Answer | Subject::Body));
        let needs_request = request.uses_cache
            || request.redirects > 0
            || request.embedded.is_some()
            || subjects().any(|subject| matches!(subject, Subject::RequestHeaders | Subject::RequestBody));
        let mut compiled = Request {
            is_constant: false,
            made: std::sync::OnceLock::new(),
            label,
            method: self.template(&request.method)?,
            url,
            element,
            query: self.parameters(&request.query)?,
            headers,
            body: self.body(request.body.as_ref())?,
            basic,
            redirects: request.redirects.min(50),
            keeps_headers_elsewhere: request.keeps_headers_elsewhere,
            cookies: request.uses_cookies,
            cache: request.uses_cache,
            embedded,
            closes: request.closes_connection,
            connect_timeout_ns: request.connect_timeout_ms.map(|ms| u64::from(ms) * 1_000_000),
            response_timeout_ns: request.response_timeout_ms.map(|ms| u64::from(ms) * 1_000_000),
            ok_status: if request.ok_status.is_empty() {
                vec![ir::StatusRange { from: 200, to: 399 }]
            } else {
                request.ok_status.clone()
            },
            extractors,
            checks,
            needs_head,
            needs_body,
            needs_request,
        };
        compiled.is_constant = is_constant(&compiled);
        self.program.requests.push(compiled);
        Ok(self.program.requests.len() as u32 - 1)
    }

    fn element(&mut self, element: &ir::PageElement) -> Result<Element, CompileError> {
        self.program.keeps_pages = true;
        let mut has = Vec::new();
        for one in &element.has {
            has.push((self.template(&one.name)?, self.template(&one.value)?));
        }
        Ok(Element { kind: element.kind, has, number: self.expression(&element.number)? })
    }

    fn parameters(&mut self, parameters: &[ir::Parameter]) -> Result<Vec<Parameter>, CompileError> {
        let mut compiled = Vec::new();
        for parameter in parameters {
            compiled.push(Parameter {
                name: self.template(&parameter.name)?,
                value: parameter.value.as_ref().map(|value| self.template(value)).transpose()?,
                is_encoded: parameter.is_encoded,
            });
        }
        Ok(compiled)
    }

    fn body(&mut self, body: Option<&RequestBody>) -> Result<Body, CompileError> {
        Ok(match body {
            None => Body::None,
            Some(RequestBody::Text { text }) => Body::Text(self.template(text)?),
            Some(RequestBody::Form { parameters }) => Body::Form(self.parameters(parameters)?),
            Some(RequestBody::File { file }) => Body::File(self.file(file)?),
            Some(RequestBody::Multipart { parts }) => {
                let mut compiled = Vec::new();
                for part in parts {
                    compiled.push(BodyPart {
                        name: self.template(&part.name)?,
                        text: self.template(&part.text)?,
                        file: part.file.as_deref().map(|file| self.file(file)).transpose()?,
                        file_name: self.template(&part.file_name)?,
                        content_type: self.template(&part.content_type)?,
                    });
                }
                Body::Multipart(compiled)
            }
        })
    }

    fn file(&self, name: &str) -> Result<std::sync::Arc<[u8]>, CompileError> {
        self.files.get(name).cloned().ok_or_else(|| self.error(format!("the plan has no file `{name}`")))
    }

    fn subject(&mut self, subject: &ir::Subject) -> Result<Subject, CompileError> {
        Ok(match subject {
            ir::Subject::Body {} => Subject::Body,
            ir::Subject::Answer {} => Subject::Answer,
            ir::Subject::Headers {} => Subject::Headers,
            ir::Subject::Status {} => Subject::Status,
            ir::Subject::Url {} => Subject::Url,
            ir::Subject::RequestHeaders {} => Subject::RequestHeaders,
            ir::Subject::RequestBody {} => Subject::RequestBody,
            ir::Subject::Variable { name } => Subject::Variable(self.slot(name)),
            ir::Subject::Reason {} => Subject::Reason,
        })
    }

    fn extractor(&mut self, extractor: &ir::Extractor) -> Result<Extractor, CompileError> {
        let find = match &extractor.find {
            ir::Find::Regex { pattern, output } => Find::Regex(self.pattern(pattern, false)?, output.clone()),
            ir::Find::JsonPath { path } => {
                self.check_json_path(path)?;
                Find::Json(self.template(path)?)
            }
            ir::Find::Header { name } => Find::Header(self.template(name)?),
            ir::Find::Cookie { name } => Find::Cookie(self.template(name)?),
            ir::Find::Boundary { left, right } => Find::Boundary(self.template(left)?, self.template(right)?),
            ir::Find::Whole {} => Find::Whole,
            ir::Find::Css { selector, attribute } => {
                let selector = self.template(selector)?;
                if let Some(text) = selector.fixed() {
                    Selector::parse(text).map_err(|message| self.error(message))?;
                }
                Find::Css(selector, self.template(attribute)?)
            }
            ir::Find::XPath { .. } => return Err(self.error("XPath cannot be executed; use `css`, `json` or `regex`")),
        };
        let pick = match &extractor.pick {
            ir::Match::Number { number } => Pick::Number(self.expression(number)?),
            ir::Match::Last {} => Pick::Last,
            ir::Match::Random {} => Pick::Random,
            ir::Match::All {} => Pick::All,
            ir::Match::Count {} => Pick::Count,
        };
        let on_miss = match &extractor.on_miss {
            MissRule::Keep {} => Miss::Keep,
            MissRule::Unset {} => Miss::Unset,
            MissRule::Default { text } => Miss::Default(self.template(text)?),
            MissRule::Fail {} => Miss::Fail,
        };
        let slot = self.slot(&extractor.variable);
        let subject = self.subject(&extractor.subject)?;
        let variable = (extractor.variable.as_str().into(), slot);
        let max_bytes = extractor.max_bytes.map_or(usize::MAX, |bytes| bytes as usize);
        Ok(Extractor { variable, subject, find, pick, on_miss, sets_groups: extractor.sets_groups, max_bytes })
    }

    fn embedded(&self, rule: &ir::EmbeddedRule) -> Result<Embedded, CompileError> {
        let pattern = rule.pattern.as_deref().filter(|pattern| !pattern.is_empty());
        let pattern = pattern.map(|pattern| regex(pattern, true)).transpose();
        let pattern = pattern.map_err(|message| self.error(message))?;
        Ok(Embedded { pattern: pattern.map(Arc::new), at_once: rule.at_once.max(1), may_fail: rule.may_fail })
    }

    fn check_json_path(&mut self, path: &[TemplatePart]) -> Result<(), CompileError> {
        if let Some(text) = self.template(path)?.fixed() {
            crate::search::json_path(text).map_err(|message| self.error(message))?;
        }
        Ok(())
    }

    fn check(&mut self, label: u32, check: &ir::Check) -> Result<Check, CompileError> {
        let tests = check.tests.iter().map(|test| self.test(test)).collect::<Result<Vec<_>, _>>()?;
        if tests.is_empty() {
            return Err(self.error("a check needs a test"));
        }
        let name = check.label.clone().unwrap_or_else(|| default_check(check));
        let names = &mut self.program.labels[label as usize].checks;
        let place = names.iter().position(|other| *other == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        Ok(Check {
            place: place as u32,
            subject: self.subject(&check.subject)?,
            tests,
            any: check.any,
            is_negated: check.is_negated,
            severity: check.severity,
            message: (!check.message.is_empty()).then(|| self.template(&check.message)).transpose()?,
        })
    }

    fn test(&mut self, test: &CheckTest) -> Result<Test, CompileError> {
        Ok(match test {
            CheckTest::Status { ranges } => Test::Status(ranges.clone()),
            CheckTest::Contains { text } => Test::Contains(self.template(text)?),
            CheckTest::Equals { text } => Test::Equals(self.template(text)?),
            CheckTest::Finds { pattern } => Test::Finds(self.pattern(pattern, false)?),
            CheckTest::Matches { pattern } => Test::Matches(self.pattern(pattern, true)?),
            CheckTest::Json { path, equals, is_pattern, is_null } => {
                self.check_json_path(path)?;
                let equals = equals.as_ref().map(|text| self.template(text)).transpose()?;
                Test::Json(self.template(path)?, equals, *is_pattern, *is_null)
            }
            CheckTest::Size { at_least, at_most } => Test::Size(*at_least, *at_most),
            CheckTest::Duration { at_most_ms } => Test::Duration(self.expression(at_most_ms)?),
            CheckTest::Condition { condition } => Test::Condition(self.expression(condition)?),
        })
    }
}

/// Whether a request is the same each time, apart from cookies.
fn is_constant(request: &Request) -> bool {
    let is_fixed = |template: &Template| template.fixed().is_some();
    let are_fixed = |parameters: &[Parameter]| {
        parameters.iter().all(|one| is_fixed(&one.name) && one.value.as_ref().is_none_or(is_fixed))
    };
    let body = match &request.body {
        Body::None | Body::File(_) => true,
        Body::Text(text) => is_fixed(text),
        Body::Form(fields) => are_fixed(fields),
        Body::Multipart(_) => false,
    };
    body && request.element.is_none()
        && is_fixed(&request.method)
        && request.url.iter().all(is_fixed)
        && are_fixed(&request.query)
        && request.headers.iter().all(|(name, value)| is_fixed(name) && is_fixed(value))
        && request.basic.as_ref().is_none_or(|(user, password)| is_fixed(user) && is_fixed(password))
}

/// Returns method and path as they are written.
fn default_label(request: &ScenarioRequest) -> String {
    let written = |parts: &[TemplatePart]| -> String {
        let part = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => text.clone(),
            TemplatePart::Expression(expression) => format!("${{{}}}", expression.name.as_deref().unwrap_or("...")),
        };
        parts.iter().map(part).collect()
    };
    format!("{} {}", written(&request.method), written(&request.path))
}

fn default_check(check: &ir::Check) -> String {
    let name = match check.tests.first() {
        Some(CheckTest::Status { .. }) => "status",
        Some(CheckTest::Contains { .. }) => "contains",
        Some(CheckTest::Equals { .. }) => "equals",
        Some(CheckTest::Finds { .. }) => "finds pattern",
        Some(CheckTest::Matches { .. }) => "matches pattern",
        Some(CheckTest::Json { .. }) => "JSON value",
        Some(CheckTest::Size { .. }) => "size",
        Some(CheckTest::Duration { .. }) => "duration",
        Some(CheckTest::Condition { .. }) | None => "condition",
    };
    if check.is_negated {
        format!("not {name}")
    } else {
        name.to_owned()
    }
}
