-- Three requests in one string.
local batch

function init(args)
   batch = wrk.format(nil, "/one") .. wrk.format(nil, "/two") .. wrk.format("POST", "/three", nil, "x=3")
end

function request()
   return batch
end
