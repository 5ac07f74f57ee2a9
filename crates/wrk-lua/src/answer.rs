//! Passes a response to Lua. Most responses of a load are equal, so only the parts that differ from the previous
//! response are copied; Lua already holds the others as interned strings. Each response gets a new table of header
//! fields.

use std::borrow::Borrow;

use mlua::{Function, LuaString};

use crate::lua::State;
use crate::ScriptError;

/// Maximum size of a body that is compared with the previous one, bytes; above it a copy costs no more than the
/// request.
const LARGEST_KEPT_BODY: usize = 64 * 1024;

/// The parts of the previous response that Lua holds.
pub(crate) struct Answer {
    set_field: Function,
    set_fields: Function,
    /// As many as one response ever had, so that their buffers are reused.
    fields: Vec<Field>,
    count: usize,
    content: Vec<u8>,
    is_content_kept: bool,
}

#[derive(Default)]
struct Field {
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Answer {
    pub(crate) fn new(state: &State) -> Result<Self, ScriptError> {
        Ok(Self {
            set_field: state.entry("set_field")?,
            set_fields: state.entry("set_fields")?,
            fields: Vec::new(),
            count: 0,
            content: Vec::new(),
            is_content_kept: true,
        })
    }

    /// Updates the header fields that Lua holds to those of this response. Returns the body if Lua does not hold it.
    #[inline]
    pub(crate) fn update<'a>(
        &mut self,
        state: &State,
        headers: impl IntoIterator<Item = impl Borrow<(&'a [u8], &'a [u8])>>,
        body: &[u8],
    ) -> Result<Option<LuaString>, ScriptError> {
        let mut count = 0;
        for field in headers {
            let (name, value) = *field.borrow();
            let same = self.fields.get(count).is_some_and(|field| field.name == name && field.value == value);
            if !same {
                self.renew_field(state, count, name, value)?;
            }
            count += 1;
        }
        if self.count != count {
            state.call::<()>(&self.set_fields, count, "response()")?;
            self.count = count;
        }
        if !self.is_content_kept || self.content != body {
            return self.renew_content(state, body).map(Some);
        }
        Ok(None)
    }

    fn renew_field(&mut self, state: &State, index: usize, name: &[u8], value: &[u8]) -> Result<(), ScriptError> {
        if index == self.fields.len() {
            self.fields.push(Field::default());
        }
        let field = &mut self.fields[index];
        field.name.clear();
        field.name.extend_from_slice(name);
        field.value.clear();
        field.value.extend_from_slice(value);
        let name = state.lua.create_string(name).map_err(|error| state.failed(&error))?;
        let value = state.lua.create_string(value).map_err(|error| state.failed(&error))?;
        state.call(&self.set_field, (index + 1, name, value), "response()")
    }

    fn renew_content(&mut self, state: &State, body: &[u8]) -> Result<LuaString, ScriptError> {
        self.content.clear();
        self.is_content_kept = body.len() <= LARGEST_KEPT_BODY;
        if self.is_content_kept {
            self.content.extend_from_slice(body);
        }
        state.lua.create_string(body).map_err(|error| state.failed(&error))
    }
}
