-- redrive: let a run go on after its end.   -> written | lost      ARGV fence turn nonce answers entry
local fence, wanted, nonce = take(), take(), take()
local state, held, turn, last, reason = get('state', 'fence', 'turn', 'last', 'reason')
if last == nonce then
  return 'written'
end
if (state ~= 'failed' and state ~= 'stopped') or held ~= fence or turn ~= wanted then
  return 'lost'
end
local answered = tonumber(ARGV[taken + 1])
append_all(log_key)
redis.call('RPUSH', ledger_key, take())
redis.call('DEL', calls_key, results_key)
redis.call('HDEL', run_key, 'reason', 'class', 'message', 'answer', 'ended', 'cancel')
redis.call('HINCRBY', run_key, 'fence', 1)
redis.call('ZREM', dead_key, run_id)
for _, key in ipairs({run_key, log_key, ledger_key, seen_key, whole_key, counts_key}) do
  redis.call('PERSIST', key)
end
count('reason:' .. reason, -1)
count('active', 1)
due_again(state, turn + answered)
-- No message is under way: the sweeper sends it.
set('last', nonce, 'streaks', '', 'sent', 0)
look_at(now)
return 'written'
