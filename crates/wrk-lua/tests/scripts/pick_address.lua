-- Each thread uses the next of the host's reachable addresses.
local candidates, turn

function setup(thread)
   if candidates == nil then
      candidates, turn = {}, 0
      for _, address in ipairs(wrk.lookup(wrk.host, wrk.port or wrk.scheme)) do
         if wrk.connect(address) then
            candidates[#candidates + 1] = address
         end
      end
   end
   thread.addr = candidates[turn % #candidates + 1]
   turn = turn + 1
end

function init()
   print("this thread talks to " .. tostring(wrk.thread.addr))
end
