//! Scripts in Lua between the requests of a flow: `vars.name` or `get(name)`, `vars.name = value` or `set(name, value)`,
//! `fail(message)`. One state per thread; each script is compiled once. A script is trusted, and runs on the thread of
//! its users: an endless loop blocks them.

use std::cell::RefCell;
use std::collections::HashMap;

use mlua::{Function, Lua, StdLib};

use super::evaluate::Context;
use super::fault::Fault;
use super::value::Value;

/// What scripts have beside `get` and `set`. A call of `get` is a global's: it has the context of each call.
const PRELUDE: &str = "
vars = setmetatable({}, {
    __index = function(_, name) return get(name) end,
    __newindex = function(_, name, value) set(name, value) end,
})
function fail(message) error(message, 0) end
";

/// Returns why a text is not Lua, with the line in it; `None` if it is. Runs nothing.
pub fn syntax_error(text: &str) -> Option<String> {
    let loaded = Lua::new_with(StdLib::NONE, mlua::LuaOptions::default())
        .and_then(|lua| lua.load(text).set_name("=line").into_function().map(drop));
    let message = loaded.err()?.to_string();
    Some(message.trim_start_matches("syntax error: ").to_owned())
}

/// The scripts of one thread.
#[derive(Debug, Default)]
pub struct Scripts {
    lua: Option<Lua>,
    compiled: HashMap<u32, Function>,
}

impl Scripts {
    /// Runs a script for a user.
    pub fn run(&mut self, context: &mut Context<'_>, script: u32) -> Result<(), Fault> {
        self.execute(context, script).map_err(|error| {
            let text = error.to_string();
            let message = text.split("\nstack traceback:").next().unwrap_or_default();
            Fault { cause: "script_error", detail: message.trim_start_matches("runtime error: ").to_owned() }
        })
    }

    fn execute(&mut self, context: &mut Context<'_>, script: u32) -> mlua::Result<()> {
        let lua = match &self.lua {
            Some(lua) => lua,
            None => {
                let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH | StdLib::BIT;
                let lua = Lua::new_with(libraries, mlua::LuaOptions::default())?;
                lua.load(PRELUDE).exec()?;
                self.lua.insert(lua)
            }
        };
        let function = match self.compiled.get(&script) {
            Some(function) => function.clone(),
            None => {
                let text = &*context.program.scripts[script as usize];
                let function = lua.load(text).set_name(format!("script {}", script + 1)).into_function()?;
                self.compiled.insert(script, function.clone());
                function
            }
        };
        let user = (i64::from(context.user.number), context.user.iteration as i64);
        let context = RefCell::new(context);
        lua.scope(|scope| {
            let get = scope.create_function(|lua, name: String| {
                let context = context.borrow();
                match context.user.named(context.program, &name) {
                    Value::Nothing => Ok(mlua::Value::Nil),
                    Value::Boolean(truth) => Ok(mlua::Value::Boolean(*truth)),
                    Value::Integer(number) => Ok(mlua::Value::Number(*number as f64)),
                    Value::Number(number) => Ok(mlua::Value::Number(*number)),
                    Value::Text(text) => lua.create_string(&**text).map(mlua::Value::String),
                }
            })?;
            let set = scope.create_function(|_, (name, value): (String, mlua::Value)| {
                let value = match value {
                    mlua::Value::Nil => Value::Nothing,
                    mlua::Value::Boolean(truth) => Value::Boolean(truth),
                    mlua::Value::Integer(number) => Value::Integer(number),
                    mlua::Value::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                        Value::Integer(number as i64)
                    }
                    mlua::Value::Number(number) => Value::Number(number),
                    mlua::Value::String(text) => Value::from(text.to_string_lossy()),
                    other => {
                        return Err(mlua::Error::runtime(format!("a variable cannot hold a {}", other.type_name())))
                    }
                };
                let mut context = context.borrow_mut();
                let program = context.program;
                context.user.set_named(program, &name, value);
                Ok(())
            })?;
            let globals = lua.globals();
            globals.set("get", get)?;
            globals.set("set", set)?;
            globals.set("user", user.0)?;
            globals.set("iteration", user.1)?;
            function.call::<()>(())
        })
    }
}
