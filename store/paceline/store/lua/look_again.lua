-- look_again: look at a run again later.   -> written | lost      ARGV fence turn wait_ms sent
local fence, wanted, wait_ms, sent = take(), take(), take_number(), take()
local state, turn, held = get('state', 'turn', 'fence')
if not state or TERMINAL[state] then
  redis.call('ZREM', due_key, run_id)
  return 'lost'
end
if held ~= fence or turn ~= wanted then
  return 'lost'
end
if sent == '1' then
  set('sent', now)
end
look_at(now + wait_ms)
return 'written'
