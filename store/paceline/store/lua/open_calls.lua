-- open_calls: append the assistant message and record its calls, before any of them runs.
-- -> written | lost | duplicate_call      ARGV fence turn nonce keep once n {approval id}… n {id spec}… write
local fence, wanted, nonce, keep, once = take(), take(), take(), take(), take()
local approvals = {}
for i = 1, take_number() do
  approvals[i] = take()
end
local n = take_number()
local ids, specs = {}, {}
for i = 1, n do
  ids[i], specs[i] = take(), take()
end
local state, held, turn, last = get('state', 'fence', 'turn', 'last')
if last ~= nonce and state == 'in_turn' and held == fence and turn == wanted then
  for _, id in ipairs(ids) do
    if redis.call('SISMEMBER', seen_key, id) == 1 then
      return 'duplicate_call'
    end
  end
end
local refusal = refused(fence, wanted, nonce)
if refusal then
  return refusal
end
take_write()
if cancelled_instead('in_turn') then
  return 'written'
end
for i = 1, n do
  redis.call('SADD', seen_key, ids[i])
  redis.call('HSET', calls_key, ids[i], specs[i])
end
for _, id in ipairs(approvals) do
  set_permission(id, 'wanted')
  set('asked', wanted)
end
set('open', n, 'once', once, 'sent', now, 'hold', 0, 'why', '')
if keep == '0' then
  set('owner', '', 'until', 0)
end
move('in_turn', 'in_tools')
look_at(now + look_ms)
await_person_if_stuck()
return 'written'
