-- A script's standard streams. The agent uses standard output and input for its own messages, so scripts and their
-- commands must not touch them. Owns `print`, `io.write`, `io.stdout`, `io.stderr` (all write to the load's output),
-- `io.stdin` (always at its end), and `os.exit` (stops the load). Files and Lua modules work as usual. C modules do
-- not, because the agent is one static program and can load no library.

local native = ...

local concat, error, getmetatable, select, tostring, type = table.concat, error, getmetatable, select, tostring, type
local emit = native.emit
local real = {}
for name, call in pairs(io) do
   real[name] = call
end
local execute = os.execute

local function joined(...)
   local parts = { ... }
   for index = 1, select("#", ...) do
      local kind = type(parts[index])
      if kind ~= "string" and kind ~= "number" then
         error("bad argument #" .. index .. " to 'write' (string expected, got " .. kind .. ")", 3)
      end
   end
   return concat(parts)
end

local ours = {}

local function stream(name, methods)
   local object = newproxy(true)
   local meta = getmetatable(object)
   meta.__index = methods
   meta.__tostring = function() return "file (" .. name .. ")" end
   ours[object] = true
   return object
end

local function nothing() return nil end
local function yes() return true end

local printed = {
   write = function(_, ...)
      emit(joined(...))
      return true
   end,
   flush = yes,
   setvbuf = yes,
   close = yes,
   seek = function() return nil, "Illegal seek", 29 end,
   read = nothing,
   lines = function() return nothing end,
}
local ended = {
   write = function() return nil, "Bad file descriptor", 9 end,
   flush = yes,
   setvbuf = yes,
   close = yes,
   seek = printed.seek,
   read = function(_, wanted) return (wanted == "*a" or wanted == "a") and "" or nil end,
   lines = function() return nothing end,
}

io.stdout = stream("stdout", printed)
io.stderr = stream("stderr", printed)
io.stdin = stream("stdin", ended)

local output, input = io.stdout, io.stdin

function print(...)
   local parts, count = { ... }, select("#", ...)
   for index = 1, count do
      parts[index] = tostring(parts[index])
   end
   emit(concat(parts, "\t", 1, count) .. "\n")
end

function io.write(...)
   if ours[output] then
      emit(joined(...))
      return true
   end
   return output:write(...)
end

function io.read(...)
   return input:read(...)
end

function io.lines(name, ...)
   if name == nil then
      return input:lines(...)
   end
   return real.lines(name, ...)
end

function io.output(file)
   if ours[file] then
      output = file
   elseif file ~= nil then
      output = real.output(file)
   end
   return output
end

function io.input(file)
   if ours[file] then
      input = file
   elseif file ~= nil then
      input = real.input(file)
   end
   return input
end

function io.close(file)
   file = file or output
   return file:close()
end

function io.flush()
   return output:flush()
end

function io.type(object)
   return ours[object] and "file" or real.type(object)
end

-- Commands: they read nothing, and their output goes to the agent's standard error.

function os.execute(command)
   if command == nil then
      return execute()
   end
   return execute("( " .. command .. "\n) </dev/null 1>&2")
end

function io.popen(command, mode)
   if mode and mode:sub(1, 1) == "w" then
      return real.popen("( " .. command .. "\n) 1>&2", mode)
   end
   return real.popen("( " .. command .. "\n) </dev/null", mode)
end

function os.exit(code)
   local argument = code == nil and "" or tostring(code)
   error(native.exit("the script called os.exit(" .. argument .. ")"), 2)
end

local no_library = "the agent is one static program: no C library can be loaded"

package.loaders[3] = function() return "\n\t" .. no_library end
package.loaders[4] = nil

function package.loadlib()
   return nil, no_library, "absent"
end

require("ffi").load = function(name)
   error("cannot load " .. tostring(name) .. ": " .. no_library, 2)
end
