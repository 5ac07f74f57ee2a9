//! A response on its way into Lua. Most responses of a load are alike, so only what differs from the one before crosses;
//! the rest is there already, as strings that Lua has interned. The table of header fields is new each time.

use std::borrow::Borrow;

use mlua::{Function, LuaString};

use crate::lua::State;
use crate::ScriptError;

/// Bodies up to here are compared with the one before; beyond, copying is no dearer than the request itself.
const LARGEST_KEPT_BODY: usize = 64 * 1024;

/// What Lua holds of the response before.
pub(crate) struct Answer {
    set_field: Function,
    set_fields: Function,
    /// As many as ever were there at once, so that their buffers stay.
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

    /// Brings the header fields that Lua holds up to this response's. Gives the body where Lua does not hold it.
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
