-- wrk's API for scripts: the `wrk` table, addresses, threads and statistics, and the functions that the load calls for
-- each request and response. Owns the part in Lua; access to another state, a socket or the load is a function of
-- `native`. Runs before the script, so the script may redefine anything.

local native = ...

local error, getmetatable, next, setmetatable, tonumber = error, getmetatable, next, setmetatable, tonumber
local tostring, type, length, new_proxy, new_table = tostring, type, string.len, newproxy, require("table.new")

local wrk = native.fields
_G.wrk = wrk
package.loaded.wrk = wrk

-- Addresses: opaque objects; only this file and `native` can read their text.

local address_texts = setmetatable({}, { __mode = "k" })

local function new_address(canonical)
   local address = new_proxy(true)
   getmetatable(address).__tostring = function() return native.shown(canonical) end
   address_texts[address] = canonical
   return address
end

local function text_of(address, level)
   local canonical = address_texts[address]
   if not canonical then
      error("an address expected, got " .. type(address), level + 1)
   end
   return canonical
end

function wrk.lookup(host, service)
   local found, problem = native.lookup(host, service)
   if not found then
      error(problem, 2)
   end
   for index = 1, #found do
      found[index] = new_address(found[index])
   end
   return found
end

function wrk.connect(address)
   return native.connect(text_of(address, 2))
end

-- The addresses of the threads' connections. The load has resolved its origin already, by its own rules. Of several
-- addresses, those that refuse a connection are left out, unless all refuse: then the load counts each refusal.
function wrk.resolve(host, service)
   local known = native.origin_addresses(host, service)
   local found = known or wrk.lookup(host, service)
   if known then
      for index = 1, #known do
         found[index] = new_address(known[index])
      end
   end
   wrk.addrs = found
   if known and #known < 2 then
      return
   end
   local reachable = {}
   for index = 1, #found do
      if wrk.connect(found[index]) then
         reachable[#reachable + 1] = found[index]
      end
   end
   if #reachable > 0 or not known then
      wrk.addrs = reachable
   end
end

function wrk.setup(thread)
   local first = wrk.addrs and wrk.addrs[1]
   if first then
      thread.addr = first
   end
   if type(setup) == "function" then
      setup(thread)
   end
end

function wrk.init(args)
   if not wrk.headers.Host then
      local host = tostring(wrk.host)
      if host:find(":", 1, true) then
         host = "[" .. host .. "]"
      end
      wrk.headers.Host = wrk.port and host .. ":" .. wrk.port or host
   end
   if type(init) == "function" then
      init(args)
   end
   local whole = wrk.format()
   wrk.request = function() return whole end
end

-- The text of a request. LuaJIT compiles a whole call only if the call contains no separately compiled loop and no
-- built-in function in tail position, so there is one step per header field instead of a loop.

local text = require("string.buffer").new(1024)

local function put(value)
   local kind = type(value)
   if kind == "string" then
      text:put(value)
   elseif kind == "number" and value % 1 == 0 and value ~= 0 and value > -1e9 and value < 1e9 then
      -- The same digits as `tostring`, without its search for the shortest decimal.
      text:putf("%d", value)
   elseif kind == "table" or kind == "userdata" then
      -- `__tostring` belongs to the script and may itself format a request.
      local before, value_text = text:tostring(), tostring(value)
      text:reset():put(before, value_text)
   else
      text:put(tostring(value))
   end
end

-- Writes the header field after the one with this name, and returns its name.
local function put_next(headers, name)
   local found, value = next(headers, name)
   if found ~= nil then
      put(found)
      text:put(": ")
      put(value)
      text:put("\r\n")
   end
   return found
end

local function put_fields(headers)
   local name = put_next(headers)
   if name ~= nil then name = put_next(headers, name) end
   if name ~= nil then name = put_next(headers, name) end
   if name ~= nil then name = put_next(headers, name) end
   if name ~= nil then name = put_next(headers, name) end
   if name ~= nil then name = put_next(headers, name) end
   if name ~= nil then name = put_next(headers, name) end
   if name ~= nil then name = put_next(headers, name) end
   if name ~= nil then name = put_next(headers, name) end
   if name ~= nil then name = put_next(headers, name) end
   if name ~= nil then name = put_next(headers, name) end
   if name ~= nil then name = put_next(headers, name) end
   while name ~= nil do
      name = put_next(headers, name)
   end
end

function wrk.format(method, path, headers, body)
   headers = headers or wrk.headers
   body = body or wrk.body
   if not headers.Host then
      headers.Host = wrk.headers.Host
   end
   if body then
      headers["Content-Length"] = length(body)
   elseif headers["Content-Length"] ~= nil then
      headers["Content-Length"] = nil
   end
   text:reset()
   put(method or wrk.method)
   text:put(" ")
   put(path or wrk.path)
   text:put(" HTTP/1.1\r\n")
   put_fields(headers)
   text:put("\r\n")
   if body then
      put(body)
   end
   local whole = text:tostring()
   return whole
end

-- Objects: userdata, as in wrk.

local function new_thread(calls)
   local methods = {}
   function methods.get(_, name)
      local value, problem = calls.get(name)
      if problem then
         error(problem, 2)
      end
      return value
   end
   function methods.set(_, name, value)
      local problem = calls.set(name, value)
      if problem then
         error(problem, 2)
      end
   end
   function methods.stop()
      calls.stop()
   end

   local thread = new_proxy(true)
   local meta = getmetatable(thread)
   function meta.__index(_, key)
      if key ~= "addr" then
         return methods[key]
      end
      local canonical = calls.address()
      return canonical and new_address(canonical)
   end
   function meta.__newindex(_, key, value)
      if key ~= "addr" then
         error("cannot set '" .. tostring(key) .. "' on thread", 2)
      end
      calls.set_address(text_of(value, 2))
   end
   return thread
end

local function new_stats(figures, calls)
   local stats = new_proxy(true)
   local meta = getmetatable(stats)
   local function percentile(_, share)
      local number = tonumber(share)
      if not number then
         error("percentile: a number from 0 to 100 expected, got " .. type(share), 2)
      end
      return calls.percentile(number)
   end
   function meta.__index(_, key)
      if key == "percentile" then
         return percentile
      end
      return figures[key]
   end
   function meta.__len() return figures.distinct end
   function meta.__call(_, index) return calls.at(index) end
   return stats
end

-- The load's entry points. Functions are looked up at each call, because a script may replace them.

local function next_request()
   local own = request
   if type(own) == "function" then
      return own()
   end
   return _G.wrk.request()
end

-- The previous response; most responses are equal to it, and `native` passes only the differences.
local names, values, fields, content = {}, {}, 0, ""

-- Steps instead of a loop here as well: this loop generates 24 of them.
local steps = {}
for index = 1, 24 do
   steps[index] = ("if count < %d then return end headers[names[%d]] = values[%d]\n"):format(index, index, index)
end
local fill = loadstring("local names, values = ... return function(headers, count)\n" .. table.concat(steps) .. [[
   for index = 25, count do
      headers[names[index] ] = values[index]
   end
end]], "=(wrk)")(names, values)

local function answered(status, changed)
   if changed then
      content = changed
   end
   local headers = new_table(0, fields)
   fill(headers, fields)
   response(status, headers, content)
end

return {
   request = next_request,
   response = answered,
   delay = function() return delay() end,
   done = function(summary, latency, requests) done(summary, latency, requests) end,
   resolve = function(host, service) _G.wrk.resolve(host, service) end,
   setup = function(calls) _G.wrk.setup(new_thread(calls)) end,
   init = function(args) _G.wrk.init(args) end,
   own_thread = function(calls) _G.wrk.thread = new_thread(calls) end,
   stats = new_stats,
   defines = function(name) return type(_G[name]) == "function" end,
   set_field = function(index, name, value) names[index], values[index] = name, value end,
   set_fields = function(count) fields = count end,
}
