-- hetsched's side of sbatch. slurmctld runs this file; it lies beside slurm.conf.
--
-- A job with `#HETSCHED --gpu-set=...` in its script is checked and marked: AdminComment becomes
-- `hetsched/1 {...}` with a nonce. In a partition that `hetsched_enforce` names (one per line, a
-- file of root's beside this one) it is also kept back by a begin time, in the shape of its default
-- count; if nobody moves that begin time on, Slurm starts the job itself. All other jobs pass.

local ENFORCE = "hetsched_enforce"
local SLACK_S = 60            -- how long a job waits for the daemon before Slurm starts it
local MAX_NODES = 64          -- most nodes of one placement
local MAX_SET, MAX_REQUIREMENTS, MAX_COUNT = 16, 8, 1000000
local MAX_MARK = 1024

local function fail(text)
  slurm.log_user("hetsched: %s", text)
  error({ refused = true })
end

-- The counts that "1,2,4-8" stands for; a range stands for at most 8 evenly spaced ones.
local function counts_of(text)
  local set, list = {}, {}
  local function add(k)
    if not set[k] then set[k] = true; list[#list + 1] = k end
  end
  for part in (text .. ","):gmatch("([^,]*),") do
    local low, high = part:match("^(%d+)%-(%d+)$")
    low = tonumber(low or part:match("^(%d+)$"))
    high = tonumber(high) or low
    if not low then
      fail("'" .. part .. "' in --gpu-set=" .. text .. " is neither a GPU count nor a range; " ..
           "write for example 4, 1,2,4 or 2-16")
    end
    if low < 1 or high > MAX_COUNT then fail("--gpu-set=" .. text .. ": counts go from 1 to " .. MAX_COUNT) end
    if low > high then fail("the range '" .. part .. "' runs backwards; write " .. high .. "-" .. low) end
    local most = MAX_REQUIREMENTS - 1
    for k = 0, most do add(low + math.floor((2 * k * (high - low) + most) / (2 * most))) end
  end
  table.sort(list)
  if #list > MAX_SET then
    fail("--gpu-set=" .. text .. " stands for " .. #list .. " counts; at most " .. MAX_SET .. " are allowed")
  end
  return list, set
end

local function words(pattern, form)
  return function(name, value)
    if not value:match(pattern) then fail("--" .. name .. "=" .. value .. ": expected " .. form) end
    return '"' .. value .. '"'
  end
end

local function number(name, value)
  if not (tonumber(value) and tonumber(value) > 0 and value:match("^[%d.eE+-]+$")) then
    fail("--" .. name .. "=" .. value .. ": expected a number above 0")
  end
  return string.format("%.17g", tonumber(value))
end

local function scaling(name, value)
  if value ~= "linear" and value ~= "sqrt" and value ~= "none" then
    fail("--" .. name .. "=" .. value .. ": expected linear, sqrt or none")
  end
  return '"' .. value .. '"'
end

local function flag(name, value)
  if value ~= "" then fail("--" .. name .. " takes no value") end
  return "true"
end

-- Option -> what turns its text into JSON, or refuses it.
local OPTIONS = {
  ["gpu-set"] = words("^[%d,-]+$", "GPU counts, for example 1,2,4-8"),
  ["gpu-types"] = words("^[%w_,-]+$", "GPU types, for example a100,v100"),
  ["gpu-mem"] = words("^%d+[MG]$", "memory of one GPU, for example 40G"),
  ["learning-rate"] = number,
  ["lr-scaling"] = scaling,
  ["profile-key"] = words("^[%w_.-]+$", "letters, digits, '_', '.' and '-'"),
  ["total-samples"] = number,
  ["no-move"] = flag,
}
local NAMES = { "gpu-set", "gpu-types", "gpu-mem", "learning-rate", "lr-scaling", "profile-key",
                "total-samples", "no-move" }

local function options_of(script)
  local found = {}
  for line in script:gmatch("[^\r\n]+") do
    local rest = line:match("^#HETSCHED%s+(.*)$")
    if rest then
      for word in rest:gmatch("%S+") do
        local name, value = word:match("^%-%-([%w-]+)=?(.*)$")
        if not name or not OPTIONS[name] then
          fail("unknown option '" .. word .. "'; known: --" .. table.concat(NAMES, ", --"))
        end
        found[name] = { value = value, json = OPTIONS[name](name, value) }
      end
    elseif not line:match("^#") and line:match("%S") then
      break
    end
  end
  return found
end

local function nonce()
  local file = assert(io.open("/dev/urandom", "rb"))
  local bytes = file:read(8)
  file:close()
  return (bytes:gsub(".", function(c) return string.format("%02x", c:byte()) end))
end

local function folder()
  local conf = os.getenv("SLURM_CONF") or "/etc/slurm/slurm.conf"
  return conf:match("^(.*)/[^/]*$") or "."
end

local function enforced(partition)
  local file = io.open(folder() .. "/" .. ENFORCE)
  if not file then return false end
  local found = false
  for line in file:lines() do found = found or line:match("^%s*(.-)%s*$") == partition end
  file:close()
  return found
end

local function asked_count(jd)
  for _, tres in ipairs({ jd.tres_per_job or "", jd.tres_per_node or "" }) do
    local count = tres:match("gpu[^,]-[:=](%d+)")
    if count then return tonumber(count) end
  end
  return nil
end

local function default_partition(parts)
  for name, part in pairs(parts) do
    if part.flag_default == 1 then return name end
  end
  return ""
end

local function mark(jd, parts, now)
  local found = options_of(jd.script or "")
  if next(found) == nil then return end
  if not found["gpu-set"] then fail("#HETSCHED lines without --gpu-set=COUNTS, for example --gpu-set=1,2,4") end
  if jd.array_inx then fail("arrays of jobs with a requirement set are not supported; submit them one by one") end
  local list, set = counts_of(found["gpu-set"].value)
  local asked = asked_count(jd)
  local count = (asked and set[asked]) and asked or list[1]
  local id = nonce()
  local parts_of_mark = { '"nonce":"' .. id .. '"', '"default":' .. string.format("%d", count) }
  for _, name in ipairs(NAMES) do
    if found[name] then parts_of_mark[#parts_of_mark + 1] = '"' .. name .. '":' .. found[name].json end
  end
  local begin = jd.begin_time or 0
  if begin > now then parts_of_mark[#parts_of_mark + 1] = '"begin":' .. string.format("%d", begin) end
  local text = "hetsched/1 {" .. table.concat(parts_of_mark, ",") .. "}"
  if #text > MAX_MARK then fail("the #HETSCHED options are too long; at most " .. MAX_MARK .. " characters") end
  jd.admin_comment = text
  if jd.environment then jd.environment["HETSCHED_NONCE"] = id end
  if not enforced(jd.partition or default_partition(parts)) then return end
  jd.requeue = 1
  jd.min_nodes = 1
  jd.max_nodes = MAX_NODES
  jd.num_tasks = 1
  jd.ntasks_per_node = 1
  jd.bitflags = slurm.USE_MIN_NODES
  jd.tres_per_job = ""
  jd.tres_per_node = "gres/gpu:" .. string.format("%d", count)
  -- From the time that the user names, the daemon has this long to act.
  jd.begin_time = math.max(begin, now) + SLACK_S
end

function slurm_job_submit(jd, parts, uid)
  if jd.admin_comment and jd.admin_comment:match("^hetsched/") then jd.admin_comment = "" end
  local ok, problem = pcall(mark, jd, parts, os.time())
  if ok then return slurm.SUCCESS end
  if type(problem) == "table" and problem.refused then return slurm.ERROR end
  slurm.log_error("hetsched: %s", tostring(problem))
  return slurm.SUCCESS
end

local GUARDED = { "tres_per_node", "tres_per_job", "req_nodes", "exc_nodes", "admin_comment" }
local GUARDED_NUMBERS = { "num_tasks", "min_nodes", "max_nodes", "begin_time" }

function slurm_job_modify(jd, rec, parts, uid)
  if uid == 0 or uid == slurm.SLURM_USER then return slurm.SUCCESS end
  if not (rec.admin_comment or ""):match("^hetsched/1 ") then return slurm.SUCCESS end
  if not enforced(rec.partition) then return slurm.SUCCESS end
  local touched = nil
  for _, name in ipairs(GUARDED) do
    if jd[name] ~= nil then touched = name end
  end
  for _, name in ipairs(GUARDED_NUMBERS) do
    local value = jd[name]
    if value ~= nil and value ~= 0 and value ~= slurm.NO_VAL then touched = name end
  end
  if touched then
    slurm.log_user("hetsched manages this job: %s is not yours to change", touched)
    return slurm.ERROR
  end
  return slurm.SUCCESS
end

return slurm.SUCCESS
