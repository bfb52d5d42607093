-- results: what there is to join.   -> {fence, asked, calls, results} | false      ARGV turn
local wanted = take()
local state, turn, fence = get('state', 'turn', 'fence')
if state ~= 'joining' or turn ~= wanted then
  return false
end
return {fence, redis.call('LINDEX', log_key, -1), redis.call('HGETALL', calls_key), redis.call('HGETALL', results_key)}
