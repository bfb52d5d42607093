-- examine: one atomic view of a run and, while it is in its tools, of its open calls.   -> {run, calls, results} | false
local run = redis.call('HGETALL', run_key)
if #run == 0 then
  return false
end
if get('state') ~= 'in_tools' then
  return {run, {}, {}}
end
return {run, redis.call('HGETALL', calls_key), redis.call('HKEYS', results_key)}
