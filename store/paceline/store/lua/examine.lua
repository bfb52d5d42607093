-- examine: one atomic view of a run and, while it has any, of its open calls.   -> {run, calls, results} | false
local run = redis.call('HGETALL', run_key)
if #run == 0 then
  return false
end
local state = get('state')
if state ~= 'in_tools' and state ~= 'awaiting_decision' and state ~= 'awaiting_approval' then
  return {run, {}, {}}
end
return {run, redis.call('HGETALL', calls_key), redis.call('HKEYS', results_key)}
