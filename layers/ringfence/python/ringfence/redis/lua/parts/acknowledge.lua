-- Gives: acknowledge(first): removes the messages whose member and deliveries alternate from ARGV[first] on, except those whose
-- receipt is not the latest.
local function acknowledge(first)
  local members, given = {}, {}
  for i = first, #ARGV, 2 do
    members[#members + 1] = ARGV[i]
    given[#given + 1] = ARGV[i + 1]
  end
  if #members == 0 then
    return
  end
  local scores = redis.call('ZMSCORE', messages, unpack(members))
  local current = {}
  for i = 1, #members do
    if is_current(scores[i], given[i]) then
      current[#current + 1] = members[i]
    end
  end
  if #current > 0 then
    redis.call('ZREM', messages, unpack(current))
  end
end
