//! Elements of an XML file. Samples that hold others (redirects, pages with what they embed) are not requests of their own:
//! those within are. What a parser may hold of one element is limited.

use std::io::{self, BufRead, Read};

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Error, Reader, XmlVersion};

use super::sample::Sample;
use crate::recorded::{Cause, SourceError};

/// The longest text or tag.
const MAX_EVENT_BYTES: usize = 16 << 20;
/// The longest text that is kept of one.
const MAX_TEXT_BYTES: usize = 8 << 20;
const MAX_DEPTH: usize = 64;

pub(super) struct Xml<R: BufRead> {
    reader: Reader<Limited<R>>,
    buffer: Vec<u8>,
    samples: Vec<Open>,
    /// The element within a sample whose text is read.
    within: Vec<u8>,
    is_over: bool,
}

/// A sample whose end has not come.
#[derive(Default)]
struct Open {
    sample: Sample,
    is_http: bool,
    has_parts: bool,
    is_too_large: bool,
}

/// Input that gives an error where one event is too long.
struct Limited<R> {
    input: R,
    left: usize,
}

impl<R: BufRead> Xml<R> {
    pub(super) fn new(input: R) -> Self {
        let mut reader = Reader::from_reader(Limited { input, left: 0 });
        reader.config_mut().expand_empty_elements = true;
        Self { reader, buffer: Vec::new(), samples: Vec::new(), within: Vec::new(), is_over: false }
    }

    /// Reads the next sample, or why it is none; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Result<Sample, Cause>>, SourceError> {
        while !self.is_over {
            self.reader.get_mut().left = MAX_EVENT_BYTES;
            self.buffer.clear();
            let mut buffer = std::mem::take(&mut self.buffer);
            let event = self.reader.read_event_into(&mut buffer).map(Event::into_owned);
            self.buffer = buffer;
            let read = match event {
                Ok(Event::Eof) => {
                    self.is_over = true;
                    // JMeter writes the end of the file when a test ends.
                    (!self.samples.is_empty()).then_some(Err(Cause::CutOff))
                }
                Ok(event) => self.take(&event)?,
                // The file ends within a tag.
                Err(Error::Syntax(_)) => {
                    self.is_over = true;
                    Some(Err(Cause::CutOff))
                }
                Err(error) => return Err(self.refuse(&error)),
            };
            if read.is_some() {
                return Ok(read);
            }
        }
        Ok(None)
    }

    fn take(&mut self, event: &Event<'_>) -> Result<Option<Result<Sample, Cause>>, SourceError> {
        match event {
            Event::Start(tag) => self.begin(tag)?,
            Event::End(tag) if matches!(tag.name().as_ref(), b"httpSample" | b"sample") => return Ok(self.end()),
            Event::End(_) => self.within.clear(),
            Event::Text(text) => self.keep(&text.xml10_content().unwrap_or_default()),
            Event::CData(text) => self.keep(&text.decode().unwrap_or_default()),
            Event::GeneralRef(name) => {
                let character = name.resolve_char_ref().ok().flatten().map(String::from);
                let known = || Some(resolve_predefined_entity(&name.decode().ok()?)?.to_owned());
                self.keep(&character.or_else(known).unwrap_or_default());
            }
            _ => {}
        }
        Ok(None)
    }

    fn begin(&mut self, tag: &BytesStart<'_>) -> Result<(), SourceError> {
        let is_http = tag.name().as_ref() == b"httpSample";
        if !is_http && tag.name().as_ref() != b"sample" {
            self.within = tag.name().as_ref().to_vec();
            return Ok(());
        }
        if self.samples.len() == MAX_DEPTH {
            let at = self.reader.buffer_position();
            return Err(SourceError::Format(format!(
                "the JTL has samples in samples more than {MAX_DEPTH} deep at byte {at}"
            )));
        }
        if let Some(parent) = self.samples.last_mut() {
            parent.has_parts = true;
        }
        let mut open = Open { is_http, ..Open::default() };
        for attribute in tag.attributes().flatten() {
            let place = match attribute.key.as_ref() {
                b"ts" => &mut open.sample.start_ms,
                b"lt" => &mut open.sample.latency_ms,
                b"ct" => &mut open.sample.connect_ms,
                b"rc" => &mut open.sample.code,
                b"tn" => &mut open.sample.thread,
                _ => continue,
            };
            *place = attribute.normalized_value(XmlVersion::Implicit1_0).unwrap_or_default().into_owned();
        }
        self.samples.push(open);
        Ok(())
    }

    fn end(&mut self) -> Option<Result<Sample, Cause>> {
        self.within.clear();
        let open = self.samples.pop()?;
        if open.has_parts {
            return None;
        }
        Some(match (open.is_too_large, open.is_http) {
            (true, _) => Err(Cause::TooLarge),
            (false, false) => Err(Cause::NoRequest),
            (false, true) => Ok(open.sample),
        })
    }

    fn keep(&mut self, text: &str) {
        let Some(open) = self.samples.last_mut() else { return };
        let place = match self.within.as_slice() {
            b"java.net.URL" => &mut open.sample.url,
            b"method" => &mut open.sample.method,
            b"queryString" => &mut open.sample.query,
            b"requestHeader" => &mut open.sample.head,
            b"cookies" => &mut open.sample.cookies,
            _ => return,
        };
        if place.len() + text.len() > MAX_TEXT_BYTES {
            open.is_too_large = true;
            return;
        }
        place.push_str(text);
    }

    fn refuse(&self, error: &Error) -> SourceError {
        match error {
            Error::Io(error) if error.kind() != io::ErrorKind::InvalidData => {
                SourceError::Io(io::Error::new(error.kind(), error.to_string()))
            }
            other => {
                let at = self.reader.buffer_position();
                SourceError::Format(format!("the JTL is no XML that JMeter writes, at byte {at}: {other}"))
            }
        }
    }
}

impl<R: BufRead> Read for Limited<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.input.read(into)
    }
}

impl<R: BufRead> BufRead for Limited<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.left == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("more than {MAX_EVENT_BYTES} bytes in one element"),
            ));
        }
        self.input.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
        self.input.consume(bytes);
    }
}
