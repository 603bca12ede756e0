-- Asks for the paths of a file (the script's only argument), one a line, in their order, again and again.
-- What is printed at the end, one line of JSON, is read by benchmarks/wrk.py.
local requests, at = {}, 0

function init(args)
   for path in io.lines(args[1]) do
      requests[#requests + 1] = wrk.format("GET", path)
   end
end

function request()
   at = at % #requests + 1
   return requests[at]
end

function done(summary, latency)
   local failed = summary.errors
   io.write(string.format(
      '\n{"requests": %d, "seconds": %.6f, "p50": %.3f, "p99": %.3f, "refused": %d, "broken": %d}\n',
      summary.requests, summary.duration / 1e6, latency:percentile(50) / 1000, latency:percentile(99) / 1000,
      failed.status, failed.connect + failed.read + failed.write + failed.timeout))
end
