-- remains: what a run that failed or was stopped left behind.   -> {turn, fence, calls, results} | false
local state, turn, fence = get('state', 'turn', 'fence')
if state ~= 'failed' and state ~= 'stopped' then
  return false
end
return {turn, fence, redis.call('HGETALL', calls_key), redis.call('HGETALL', results_key)}
