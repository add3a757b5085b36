-- Takes one of every limit, or none of any. KEYS: the limits; ARGV: interval and tolerance of each, in
-- microseconds. Answers {1, until when each is taken} or {0, which is full, how long to wait}.
-- The clock is the store's, so that all who ask have the same.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local taken, full, wait = {}, 0, 0
for i, key in ipairs(KEYS) do
  local interval, tolerance = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local empty_at = tonumber(redis.call('GET', key) or 0) or 0
  taken[i] = math.max(empty_at, now) + interval
  if taken[i] - now - tolerance > wait then
    full, wait = i, taken[i] - now - tolerance
  end
end
if full > 0 then
  return {0, full, wait}
end
local answer = {1}
for i, key in ipairs(KEYS) do
  local text = string.format('%.0f', taken[i])
  redis.call('SET', key, text, 'PX', math.ceil((taken[i] - now) / 1000) + 1)
  answer[i + 1] = text
end
return answer
