-- begin_call: claim a call; the intent is on record before the tool starts.
-- -> {ok, spec, attempt, agent} | {missing | stale | done | busy | waits | cancelled}      ARGV turn call owner nonce longest_ms
local wanted, call, mine, nonce, longest_ms = take(), take(), take(), take(), take_number()
local state, turn, cancel, agent = get('state', 'turn', 'cancel', 'agent')
if not state then
  return {'missing'}
end
local spec = redis.call('HGET', calls_key, call)
if state ~= 'in_tools' or turn ~= wanted or not spec then
  return {'stale'}
end
if has_result(call) then
  return {'done'}
end
local attempt, owner, _, held_by = claim_of(call)
if owner ~= '' then
  return held_by == nonce and {'ok', spec, attempt, agent} or {'busy'}
end
if cancel == '1' then
  return {'cancelled'}
end
local once = ' ' .. (get('once') or '') .. ' '
if once:find(' ' .. call .. ' ', 1, true) and once_due() ~= call then
  return {'waits'}
end
set_claim(call, attempt + 1, mine, now + longest_ms, nonce)
return {'ok', spec, attempt + 1, agent}
