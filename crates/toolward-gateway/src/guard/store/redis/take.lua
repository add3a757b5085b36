-- Consumes one unit of every limit, or none of any (GCRA). KEYS: the limits. ARGV: interval and tolerance
-- of each in microseconds, then the deadline of the caller (0: unknown). Every reply has the time: {1,
-- time, new fill time of each}, {0, time, index of the full limit, wait}, or {2, time} after the
-- deadline. The clock is the store's, so that all gateways use the same one.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local told = string.format('%.0f', now)
local valid_until = tonumber(ARGV[2 * #KEYS + 1])
if valid_until > 0 and now > valid_until then
  return {2, told}
end
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
  return {0, told, full, wait}
end
local answer = {1, told}
for i, key in ipairs(KEYS) do
  local text = string.format('%.0f', taken[i])
  redis.call('SET', key, text, 'PX', math.ceil((taken[i] - now) / 1000) + 1)
  answer[i + 2] = text
end
return answer
