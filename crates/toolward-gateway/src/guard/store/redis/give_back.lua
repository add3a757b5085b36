-- Returns consumed units that have not refilled yet. KEYS: the limits. ARGV: interval of each, and the
-- fill time after it was consumed.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
for i, key in ipairs(KEYS) do
  local interval, taken = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local empty_at = tonumber(redis.call('GET', key) or 0) or 0
  local left = math.min(math.max(taken - now, 0), interval)
  local remains = empty_at - left - now
  if remains > 0 then
    redis.call('SET', key, string.format('%.0f', empty_at - left), 'PX', math.ceil(remains / 1000) + 1)
  elseif empty_at > 0 then
    redis.call('DEL', key)
  end
end
return {1}
