-- begin: claim the next attempt at a turn.   -> {ok, run, now} | {missing | busy | stale | held}
-- ARGV turn owner nonce longest_ms
local wanted, owner, nonce, longest_ms = take(), take(), take(), take_number()

local function view()
  return {'ok', redis.call('HGETALL', run_key), now}
end

local state, turn, held_by, hold, sent, lost = get('state', 'turn', 'nonce', 'hold', 'sent', 'lost')
if not state then
  return {'missing'}
end
if turn ~= wanted then
  return {'stale'}
end
if state == 'in_turn' then
  return held_by == nonce and view() or {'busy'}
end
if state == 'on_hold' and tonumber(hold) > now then
  return {'held'}
end
if state ~= 'queued' and state ~= 'turn_due' and state ~= 'on_hold' then
  return {'stale'}
end
local starts = state == 'queued' or (state == 'on_hold' and turn == '1' and not lost)
redis.call('HINCRBY', run_key, 'fence', 1)
redis.call('HINCRBY', run_key, 'attempts', 1)
set('owner', owner, 'nonce', nonce, 'until', now + longest_ms)
move(state, 'in_turn')
observe_wait(starts and 'paceline.starts' or 'paceline.turns', math.max(tonumber(sent), tonumber(hold or 0)))
look_at(now + look_ms)
return view()
