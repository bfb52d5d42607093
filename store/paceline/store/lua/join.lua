-- join: append a turn's results; the next turn is due.   -> written | lost
-- ARGV fence turn nonce message n results…
local fence, wanted, nonce, message, inline = take(), take(), take(), take(), take_number()
local state, turn, held, last, open, cancel = get('state', 'turn', 'fence', 'last', 'open', 'cancel')
if last == nonce then
  return 'written'
end
if held ~= fence or turn ~= wanted then
  return 'lost'
end
-- A call that somebody has begun has left a claim beside it: whoever ran them inline was given up for dead.
local runs_inline = state == 'in_tools' and inline == tonumber(open) and redis.call('HLEN', calls_key) == inline
if state ~= 'joining' and not runs_inline then
  return 'lost'
end
set('last', nonce)
redis.call('RPUSH', log_key, message)
for _ = 1, inline do
  take_result()
end
redis.call('DEL', calls_key, results_key)
if cancel == '1' then
  end_cancelled(state)
else
  due_again(state, wanted + 1)
end
return 'written'
