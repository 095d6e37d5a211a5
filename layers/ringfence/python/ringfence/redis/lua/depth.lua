-- depth: how many messages are visible, leased and delayed. Hidden ones are told apart one by one while there are few; of many,
-- a sample at even distances stands for all.
--
-- KEYS[1]   messages: the sorted set of the queue, scored by the millisecond at which each is visible
-- ARGV[1]   the most hidden messages to look at
-- Returns   {ready, leased, delayed, age}; ready and the sum of the two others are exact; age is for how many milliseconds the
--           oldest of the ready has been visible, 0 where there is none
-- Errors    none of its own
local messages = KEYS[1]
-- include: now
-- include: marker
-- include: receipts

local ready = redis.call('ZCOUNT', messages, '-inf', string.format('(%.0f', now + 1))
local hidden = redis.call('ZCOUNT', messages, now + 1, FAR)
local looks = math.min(hidden, tonumber(ARGV[1]))
local leased = 0
for i = 0, looks - 1 do
  local rank = ready + math.floor((i + 0.5) * hidden / looks)
  local found = redis.call('ZRANGE', messages, rank, rank, 'WITHSCORES')
  if deliveries_of(found[2]) > 0 then
    leased = leased + 1
  end
end
if looks > 0 then
  leased = math.floor(leased * hidden / looks + 0.5)
end
local age = 0
if ready > 0 then
  age = now - math.max(0, redis.call('ZRANGE', messages, 0, 0, 'WITHSCORES')[2])
end
return {ready, leased, hidden - leased, age}
