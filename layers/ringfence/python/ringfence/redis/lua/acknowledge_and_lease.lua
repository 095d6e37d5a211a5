-- acknowledge_and_lease: removes what is done, then takes visible messages and hides them, in one step.
--
-- KEYS[1]   messages: the sorted set of the queue, scored by the millisecond at which each is visible
-- KEYS[2]   wake: the list that waiting workers block on
-- ARGV[1]   the most messages to take
-- ARGV[2]   the lease in milliseconds
-- ARGV[3]   how long, in milliseconds, a waiting worker waits before it looks by itself
-- ARGV[4]   1 if this worker waits when there is nothing, or never waited; 0 if its wait is over
-- ARGV[5…]  what is done: member, deliveries, member, deliveries, …
-- Returns   {now, next, lost, member, deliveries, member, deliveries, …}, see parts/lease.lua
-- Errors    READONLY: nothing was removed or taken. Never OOM
local messages, wake = KEYS[1], KEYS[2]
-- include: now
-- include: first_write
-- include: marker
-- include: receipts
-- include: wake
-- include: acknowledge
-- include: lease

acknowledge(5)
return lease(tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1')
