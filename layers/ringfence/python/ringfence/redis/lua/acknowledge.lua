-- acknowledge: removes messages for good. A receipt that is not the latest, or a message that is gone, is passed over; a lease
-- that has ended counts while nobody else has the message.
--
-- KEYS[1]   messages: the sorted set of the queue, scored by the millisecond at which each is visible
-- ARGV      member, deliveries, member, deliveries, …
-- Returns   0
-- Errors    READONLY: nothing was removed. Never OOM
local messages = KEYS[1]
-- include: receipts
-- include: acknowledge

acknowledge(1)
return 0
