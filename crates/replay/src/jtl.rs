//! JMeter's results: a row, or an element, for each sample. A CSV file says neither methods nor bodies: its requests are GET
//! with bodies that are not known; an XML file may have both. A session is a thread.

mod csv;
mod sample;
mod xml;

use std::io::BufRead;

use self::csv::Csv;
use self::xml::Xml;
use crate::recorded::{Causes, Recorded, Source, SourceError};

/// Requests of a JTL file.
pub struct JtlSource<R: BufRead> {
    form: Form<R>,
    causes: Causes,
}

enum Form<R: BufRead> {
    Csv(Csv<R>),
    Xml(Box<Xml<R>>),
}

impl<R: BufRead> JtlSource<R> {
    /// Reads the beginning of a file.
    ///
    /// # Errors
    /// Why it has no requests: no header row, or no column for URLs.
    pub fn open(mut input: R) -> Result<Self, SourceError> {
        let is_xml = input.fill_buf()?.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'<');
        let form = if is_xml { Form::Xml(Box::new(Xml::new(input))) } else { Form::Csv(Csv::open(input)?) };
        Ok(Self { form, causes: Causes::default() })
    }
}

impl<R: BufRead + Send> Source for JtlSource<R> {
    fn next(&mut self) -> Result<Option<Recorded>, SourceError> {
        loop {
            let read = match &mut self.form {
                Form::Csv(csv) => csv.next()?,
                Form::Xml(xml) => xml.next()?,
            };
            match read.map(|sample| sample.and_then(|sample| sample.record())) {
                None => return Ok(None),
                Some(Ok(recorded)) => return Ok(Some(recorded)),
                Some(Err(cause)) => self.causes.add(cause),
            }
        }
    }

    fn causes(&self) -> &Causes {
        &self.causes
    }
}
