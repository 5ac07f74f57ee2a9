-- A table of percentiles at the end.
function done(summary, latency, requests)
   for _, share in ipairs({ 50, 90, 99.9 }) do
      io.write(string.format("%g%% %d us\n", share, latency:percentile(share)))
   end
   io.stdout:write(summary.requests, " requests\n")
end
