-- The path and a header field change with each request.
local sent = 0

function request()
   local number = sent
   sent = sent + 1
   wrk.headers["X-Number"] = number
   return wrk.format(nil, "/item/" .. number)
end
