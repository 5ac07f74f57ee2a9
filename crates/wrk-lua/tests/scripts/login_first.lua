-- Log in, then send the returned key with every later request.
local key

function request()
   if key then
      return wrk.format(nil, "/inside")
   end
   return wrk.format(nil, "/login")
end

function response(status, headers)
   if key == nil and status == 200 then
      key = headers["X-Key"]
      wrk.headers["X-Key"] = key
   end
end
