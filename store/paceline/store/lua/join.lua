-- join: append a turn's results; the next turn is due.   -> written | lost
-- ARGV fence turn nonce message working_ms n entries…
local fence, wanted, nonce, message, working = take(), take(), take(), take(), take()
local state, turn, held, last, open, cancel = get('state', 'turn', 'fence', 'last', 'open', 'cancel')
if last == nonce then
  return 'written'
end
if held ~= fence or turn ~= wanted then
  return 'lost'
end
local inline = tonumber(ARGV[taken + 1])
if state ~= 'joining' and not (state == 'in_tools' and inline == tonumber(open)) then
  return 'lost'
end
set('last', nonce)
redis.call('RPUSH', log_key, message)
append_all(ledger_key)
add('tools', tostring(inline))
add('working', working)
redis.call('DEL', calls_key, results_key)
if cancel == '1' then
  end_cancelled(state)
else
  due_again(state, wanted + 1)
end
return 'written'
