-- reserve: what a run holds of its batch's budget, before a call and after it.   -> reserved | wait | spent | stale
-- KEYS budget      ARGV retention_s run version spent at_most      nano-dollars of the run: so far, and with the call
-- In the slot of the batch, and so without lib.lua. A run's entry is `version|spent|at_most`; `spent` and `held` are the
-- sums of them. An older version changes nothing; the same again is answered alike.
local key, retention_s, run = KEYS[1], ARGV[1], ARGV[2]
local version, spent, at_most = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local total, all_spent, all_held, known = unpack(redis.call('HMGET', key, 'total', 'spent', 'held', run))
local known_version, known_spent, known_at_most = (known or '0|0|0'):match('^([^|]*)|([^|]*)|([^|]*)$')
if known and tonumber(known_version) > version then
  return 'stale'
end
local others_spent = (tonumber(all_spent) or 0) - tonumber(known_spent)
local others_held = (tonumber(all_held) or 0) - tonumber(known_at_most)

local function whole(number)
  return string.format('%.0f', number)
end

local function hold(nanousd)
  redis.call('HSET', key, 'spent', whole(others_spent + spent), 'held', whole(others_held + nanousd),
    run, table.concat({whole(version), whole(spent), whole(nanousd)}, '|'))
  redis.call('EXPIRE', key, retention_s)
end

total = tonumber(total) or 0
if at_most == spent or others_held + at_most <= total then
  hold(at_most)
  return 'reserved'
end
-- No call: what an earlier attempt may still hold is given back.
hold(spent)
return others_spent + at_most <= total and 'wait' or 'spent'
