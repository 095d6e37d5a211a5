-- Gives: deliveries_of(score), is_current(score, deliveries), until_with(millisecond, deliveries).
-- How often a message was handed out is the fraction of its score, in 2048ths of a millisecond: 0 for one that never was. It
-- is the receipt as well, for every lease raises it. A double holds both exactly until the year 2109. At 2047 it stays.
local STEPS = 2048
local floor = math.floor
local function deliveries_of(score)
  local deliveries = floor((score % 1) * STEPS)
  return deliveries == deliveries and deliveries or 0 -- a stranger's infinite score has no fraction
end
local function is_current(score, deliveries)
  local given = tonumber(deliveries) or 0
  return score and given > 0 and deliveries_of(score) == given
end
local function until_with(millisecond, deliveries)
  return floor(millisecond) + deliveries / STEPS
end
