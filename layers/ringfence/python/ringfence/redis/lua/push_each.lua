-- push_each: push, with a delay for each message.
--
-- KEYS[1]   messages: the sorted set of the queue, scored by the millisecond at which each is visible
-- KEYS[2]   wake: the list that waiting workers block on
-- ARGV[1]   1 if a worker that waits is to look at once, else 0
-- ARGV[2…]  a delay in milliseconds and a body, by turns, at least once
-- Returns   1 if the set had no marker (it is new, or its memory was lost), else 0
-- Errors    OOM, READONLY: nothing was added
local messages, wake = KEYS[1], KEYS[2]
-- include: now
-- include: marker
-- include: wake

local id = time[1] * 1000000 + time[2]
local scored = {}
for i = 2, #ARGV, 2 do
  scored[i - 1] = now + ARGV[i]
  scored[i] = string.format('%013x', id + i) .. '\31' .. ARGV[i + 1]
end
scored[#scored + 1], scored[#scored + 2] = made_at(), MARKER
local added = redis.call('ZADD', messages, 'NX', unpack(scored))
if ARGV[1] == '1' then
  wake_one()
end
return 2 * added > #ARGV - 1 and 1 or 0
