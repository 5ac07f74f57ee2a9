//! Copies values from one state to another, for `thread:get` and `thread:set`. Refuses values without a copy:
//! functions, userdata, coroutines, and tables that contain themselves.

use std::collections::HashMap;
use std::ffi::c_void;

use mlua::{Lua, Table, Value};

/// Maximum nesting depth of tables.
const DEEPEST: usize = 100;

/// Copies `value` into the state `to`. A table that occurs twice stays one table.
///
/// # Errors
/// Which value cannot be copied.
pub(crate) fn transfer(value: &Value, to: &Lua) -> Result<Value, String> {
    Transfer { to, copies: HashMap::new(), open: Vec::new() }.value(value)
}

struct Transfer<'a> {
    to: &'a Lua,
    copies: HashMap<*const c_void, Table>,
    /// The tables that contain the one being copied.
    open: Vec<*const c_void>,
}

impl Transfer<'_> {
    fn value(&mut self, value: &Value) -> Result<Value, String> {
        match value {
            Value::Nil => Ok(Value::Nil),
            Value::Boolean(flag) => Ok(Value::Boolean(*flag)),
            Value::Integer(number) => Ok(Value::Integer(*number)),
            Value::Number(number) => Ok(Value::Number(*number)),
            Value::String(text) => self.to.create_string(text.as_bytes()).map(Value::String).map_err(error_text),
            Value::Table(table) => self.table(table).map(Value::Table),
            other => Err(format!("cannot transfer '{}' to thread", other.type_name())),
        }
    }

    fn table(&mut self, table: &Table) -> Result<Table, String> {
        let identity = table.to_pointer();
        if self.open.contains(&identity) {
            return Err("cannot transfer a table that contains itself to thread".to_owned());
        }
        if let Some(copy) = self.copies.get(&identity) {
            return Ok(copy.clone());
        }
        if self.open.len() == DEEPEST {
            return Err(format!("cannot transfer tables more than {DEEPEST} deep to thread"));
        }
        self.open.push(identity);
        let copy = self.to.create_table().map_err(error_text)?;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair.map_err(error_text)?;
            copy.raw_set(self.value(&key)?, self.value(&value)?).map_err(error_text)?;
        }
        self.open.pop();
        self.copies.insert(identity, copy.clone());
        Ok(copy)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn error_text(error: mlua::Error) -> String {
    error.to_string()
}
