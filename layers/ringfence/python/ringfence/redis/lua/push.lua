-- push: adds messages, visible after a delay. A member is 13 hexadecimal digits, that are the microsecond of the push and rise
-- within it, the character 31, and the body: so equal bodies are two messages, and messages of one millisecond keep their order.
--
-- KEYS[1]   messages: the sorted set of the queue, scored by the millisecond at which each is visible
-- KEYS[2]   wake: the list that waiting workers block on
-- ARGV[1]   the delay in milliseconds
-- ARGV[2]   1 if a worker that waits is to look at once, else 0
-- ARGV[3…]  the bodies, at least one
-- Returns   1 if the set had no marker (it is new, or its memory was lost), else 0
-- Errors    OOM, READONLY: nothing was added
local messages, wake = KEYS[1], KEYS[2]
-- include: now
-- include: marker
-- include: wake

-- As text, once: Redis would write out the number for each message.
local visible_at = string.format('%.0f', now + ARGV[1])
local id, format = time[1] * 1000000 + time[2], string.format -- the microsecond
local scored, last = {}, 0
for i = 3, #ARGV do
  scored[last + 1] = visible_at
  scored[last + 2] = format('%013x', id + i) .. '\31' .. ARGV[i]
  last = last + 2
end
scored[last + 1], scored[last + 2] = made_at(), MARKER
local added = redis.call('ZADD', messages, 'NX', unpack(scored))
if ARGV[2] == '1' then
  wake_one()
end
return added > #ARGV - 2 and 1 or 0
