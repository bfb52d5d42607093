-- finish: the run is over.   -> written | lost | illegal:<state>
-- ARGV fence turn nonce from to reason class message has_answer answer write      from: the states that may end so
local fence, wanted, nonce, from = take(), take(), take(), take()
local to, reason, class, message = take(), take(), take(), take()
local has_answer, answer = take() == '1', take()
local state, held, turn, last = get('state', 'fence', 'turn', 'last')
if last == nonce then
  return 'written'
end
if not state or TERMINAL[state] or held ~= fence or turn ~= wanted then
  return 'lost'
end
if not (' ' .. from .. ' '):find(' ' .. state .. ' ', 1, true) then
  return 'illegal:' .. state
end
set('last', nonce)
take_write()
end_run(state, to, reason, class, message, has_answer and answer)
return 'written'
