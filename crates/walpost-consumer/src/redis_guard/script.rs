//! What runs within Redis: all of a batch at once.

/// KEYS: of the events. ARGV: time to live and lease in milliseconds,
/// position, epoch, then of each event its offset and what was decided about
/// the value that was seen, `d<value>` or `m<value>`, else nothing.
///
/// Of each event: `n` new, claimed; `d` done; `o` no guard's; `w<value>` claimed
/// by another record or in an earlier epoch, `x<value>` the same beyond its time. Claims all new ones
/// if there is none of the last two kinds, and otherwise nothing.
pub(super) const CLAIM: &str = r"
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local ttl, lease, position, epoch = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local answers, undecided = {}, false
for i, key in ipairs(KEYS) do
  local offset, decided = ARGV[3 + 2 * i], ARGV[4 + 2 * i]
  local value = redis.call('GET', key)
  if not value or decided == 'm' .. value then
    answers[i] = 'n'
  elseif value == 'd' or decided == 'd' .. value then
    answers[i] = 'd'
  else
    local at, of, claimed, by = string.match(value, '^p:(%-?%d+):(%-?%d+):(%-?%d+):(%d+)$')
    if not at then
      answers[i] = 'o'
      undecided = true
    elseif at == position and of == offset and claimed == epoch then
      answers[i] = 'n'
    else
      answers[i] = (tonumber(by) < now and 'x' or 'w') .. value
      undecided = true
    end
  end
end
if not undecided then
  local by = string.format('%.0f', now + lease)
  for i, key in ipairs(KEYS) do
    if answers[i] == 'n' then
      local offset = ARGV[3 + 2 * i]
      local value = 'p:' .. position .. ':' .. offset .. ':' .. epoch .. ':' .. by
      redis.call('SET', key, value, 'PX', ttl)
    end
  end
end
return answers
";

/// KEYS: of the events. ARGV: position, epoch, then the offset of each event.
/// Deletes what is claimed for these.
pub(super) const RELEASE: &str = r"
for i, key in ipairs(KEYS) do
  local value = redis.call('GET', key)
  local mine = 'p:' .. ARGV[1] .. ':' .. ARGV[2 + i] .. ':' .. ARGV[2] .. ':'
  if value and string.sub(value, 1, #mine) == mine then
    redis.call('DEL', key)
  end
end
return 'OK'
";
