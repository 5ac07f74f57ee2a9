-- Stop this thread after five responses.
local left = 5

function response()
   left = left - 1
   if left == 0 then
      wrk.thread:stop()
   end
end
