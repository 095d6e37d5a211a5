-- marker: what tells this memory of the queue from an earlier one that was lost.
--
-- KEYS[1]   messages: the sorted set of the queue, scored by the millisecond at which each is visible
-- Returns   {made, lost}: the microsecond at which the marker was made, as text; 1 if it was made just now, else 0
-- Errors    OOM, READONLY: there is no marker and none can be made
local messages = KEYS[1]
-- include: now
-- include: marker

local lost = mark()
return {string.format('%.0f', redis.call('ZSCORE', messages, MARKER)), lost}
