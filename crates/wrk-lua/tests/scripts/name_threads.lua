-- Values that the main state sends to the threads, and that it reads from them at the end.
local all = {}

function setup(thread)
   all[#all + 1] = thread
   thread:set("number", #all)
end

function init()
   sent, seen = 0, 0
   io.write("thread ", number, " is up\n")
end

function request()
   sent = sent + 1
   return wrk.request()
end

function response()
   seen = seen + 1
end

function done()
   for _, thread in ipairs(all) do
      print(("thread %d: %d sent, %d seen"):format(thread:get("number"), thread:get("sent"), thread:get("seen")))
   end
end
