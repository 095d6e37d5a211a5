-- Gives: acknowledge(first): removes the messages whose member and deliveries alternate from ARGV[first] on, except those whose
-- receipt is not the latest.
local function acknowledge(first)
  local members, count = {}, 0
  for i = first, #ARGV, 2 do
    count = count + 1
    members[count] = ARGV[i]
  end
  if count == 0 then
    return
  end
  local scores = redis.call('ZMSCORE', messages, unpack(members))
  local current, kept = {}, 0
  for i = 1, count do
    if is_current(scores[i], ARGV[first + 2 * i - 1]) then
      kept = kept + 1
      current[kept] = members[i]
    end
  end
  if kept > 0 then
    redis.call('ZREM', messages, unpack(current))
  end
end
