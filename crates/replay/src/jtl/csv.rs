//! Rows of a CSV file with a header row. A row may hold line ends within quotes, up to a limit.

use std::io::{BufRead, Read};

use super::sample::Sample;
use crate::recorded::{Cause, SourceError};

/// A longer row is passed over.
const MAX_ROW_BYTES: usize = 256 << 10;

pub(super) struct Csv<R> {
    input: R,
    delimiter: u8,
    columns: Vec<String>,
    row: Vec<u8>,
}

/// A row that was read.
enum Row {
    Whole,
    Bad(Cause),
    End,
}

impl<R: BufRead> Csv<R> {
    /// Reads the header row.
    pub(super) fn open(input: R) -> Result<Self, SourceError> {
        let mut this = Self { input, delimiter: b',', columns: Vec::new(), row: Vec::new() };
        let format = |text: &str| Err(SourceError::Format(text.to_owned()));
        if !matches!(this.read_row()?, Row::Whole) {
            return format("not a JTL: it has no row");
        }
        if this.row.starts_with(b"\xef\xbb\xbf") {
            this.row.drain(..3);
        }
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'"' | b' ');
        this.delimiter = this.row.iter().copied().find(|byte| !is_name(byte)).unwrap_or(b',');
        this.columns = this.split().unwrap_or_default();
        let has = |name: &str| this.columns.iter().any(|column| column == name);
        if !has("timeStamp") {
            return format(
                "not a JTL with a header row (timeStamp,elapsed,…); JMeter writes one with \
                 jmeter.save.saveservice.print_field_names=true",
            );
        }
        if !has("URL") {
            return format(
                "the JTL has no column URL, so its requests are not known; JMeter writes it with \
                 jmeter.save.saveservice.url=true",
            );
        }
        Ok(this)
    }

    /// Reads the next row, or why it is none; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Result<Sample, Cause>>, SourceError> {
        match self.read_row()? {
            Row::End => return Ok(None),
            Row::Bad(cause) => return Ok(Some(Err(cause))),
            Row::Whole => {}
        }
        let Some(values) = self.split().filter(|values| values.len() == self.columns.len()) else {
            return Ok(Some(Err(Cause::Malformed)));
        };
        let mut sample = Sample::default();
        for (column, value) in self.columns.iter().zip(values) {
            let place = match column.as_str() {
                "timeStamp" => &mut sample.start_ms,
                "Latency" => &mut sample.latency_ms,
                "Connect" => &mut sample.connect_ms,
                "responseCode" => &mut sample.code,
                "threadName" => &mut sample.thread,
                "URL" => &mut sample.url,
                _ => continue,
            };
            *place = value;
        }
        Ok(Some(Ok(sample)))
    }

    /// Reads lines until quotes are closed.
    fn read_row(&mut self) -> Result<Row, SourceError> {
        self.row.clear();
        let (mut quotes, mut is_too_large) = (0, false);
        loop {
            let from = self.row.len();
            let read = self.input.by_ref().take(MAX_ROW_BYTES as u64).read_until(b'\n', &mut self.row)?;
            if read == 0 {
                return Ok(match (self.row.is_empty() && !is_too_large, quotes % 2) {
                    (true, _) => Row::End,
                    (false, 0) if !is_too_large => Row::Whole,
                    _ => Row::Bad(Cause::CutOff),
                });
            }
            quotes += self.row[from..].iter().filter(|byte| **byte == b'"').count();
            let is_line = self.row.ends_with(b"\n");
            if is_line && (is_too_large || quotes % 2 == 0) {
                let is_blank = self.row.iter().all(u8::is_ascii_whitespace);
                if is_blank && !is_too_large {
                    self.row.clear();
                    continue;
                }
                return Ok(if is_too_large { Row::Bad(Cause::TooLarge) } else { Row::Whole });
            }
            if self.row.len() > MAX_ROW_BYTES {
                // A quote that is not closed takes no more than this; the next line is a row again.
                is_too_large = true;
                self.row.clear();
            }
        }
    }

    /// Splits the row into its values; `None` if quotes are not where they may be, or it is not UTF-8.
    fn split(&self) -> Option<Vec<String>> {
        let row = std::str::from_utf8(&self.row).ok()?.trim_end_matches(['\r', '\n']);
        let (mut values, mut rest) = (Vec::new(), row);
        let delimiter = char::from(self.delimiter);
        loop {
            let (value, after) = match rest.strip_prefix('"') {
                Some(quoted) => split_quoted(quoted)?,
                None => {
                    let end = rest.find(delimiter).unwrap_or(rest.len());
                    (rest[..end].to_owned(), &rest[end..])
                }
            };
            values.push(value);
            match after.strip_prefix(delimiter) {
                Some(next) => rest = next,
                None => return after.is_empty().then_some(values),
            }
        }
    }
}

/// Reads up to the closing quote; two quotes are one.
fn split_quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut rest) = (String::new(), text);
    loop {
        let (part, after) = rest.split_once('"')?;
        value.push_str(part);
        match after.strip_prefix('"') {
            Some(next) => {
                value.push('"');
                rest = next;
            }
            None => return Some((value, after)),
        }
    }
}
