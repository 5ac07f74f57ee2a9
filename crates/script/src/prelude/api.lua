-- wrk's API as a script sees it: the `wrk` table, addresses, threads and statistics, and the entry points that each
-- request and response goes through. Owns what is said in Lua; whatever touches another state, a socket or the load is
-- a function of `native`. Runs before the script, so that what the script redefines is the script's.

local native = ...

local error, getmetatable, pairs, setmetatable, tostring, type = error, getmetatable, pairs, setmetatable, tostring, type
local length, new_proxy, tonumber = string.len, newproxy, tonumber
local new_table = require("table.new")
local text = require("string.buffer").new(1024)

local wrk = native.fields
_G.wrk = wrk
package.loaded.wrk = wrk

-- Addresses: opaque objects whose text only this file and `native` know.

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
   return native.connect(text_of(address or false, 2))
end

-- Who the threads talk to. The load has resolved the origin already, by its own rules; of several addresses those that
-- refuse are left out, unless all do: then each refusal is the load's to count.
function wrk.resolve(host, service)
   local addresses = native.origin_addresses()
   for index = 1, #addresses do
      addresses[index] = new_address(addresses[index])
   end
   wrk.addrs = addresses
   if #addresses < 2 then
      return
   end
   local reachable = {}
   for index = 1, #addresses do
      if wrk.connect(addresses[index]) then
         reachable[#reachable + 1] = addresses[index]
      end
   end
   if #reachable > 0 then
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

-- What a buffer takes as it is, or its text.
local function printable(value)
   local kind = type(value)
   if kind == "string" or kind == "number" then
      return value
   end
   return tostring(value)
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
   text:put(printable(method or wrk.method), " ", printable(path or wrk.path), " HTTP/1.1\r\n")
   for name, value in pairs(headers) do
      text:put(printable(name), ": ", printable(value), "\r\n")
   end
   text:put("\r\n", body or "")
   return text:tostring()
end

-- Objects: userdata to the script, as they are in wrk.

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
      calls.set_address(text_of(value or false, 2))
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

-- The load's way in. Functions are looked up anew each time, because a script may replace its own.

local function next_request()
   local own = request
   if type(own) == "function" then
      return own()
   end
   return _G.wrk.request()
end

local names, values, fields, content = {}, {}, 0, ""

local function answered(status)
   local headers = new_table(0, fields)
   for index = 1, fields do
      headers[names[index]] = values[index]
   end
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
   set_content = function(bytes) content = bytes end,
}
