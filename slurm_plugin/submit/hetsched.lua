-- hetsched's side of sbatch, as a module of slurmctld's job_submit.lua; it lies beside slurm.conf.
--
-- It checks the options of a job at its submission (`--gpu-set` and others: options of sbatch where
-- the SPANK plug-in is installed, or `#HETSCHED` lines of the script), marks it, and guards what the
-- daemon has placed. Nothing hangs on it: without it the daemon reads the lines from the script.
--
-- A site's own job_submit.lua calls it:
--
--     package.path = "/etc/slurm/?.lua;" .. package.path
--     local hetsched = require("hetsched")
--     function slurm_job_submit(desc, parts, uid)
--       local rc = hetsched.submit(desc, parts, uid)
--       if rc ~= slurm.SUCCESS then return rc end
--       ...

local M = {}

-- Whether a list of reservations has the one in it that holds the managed nodes; Slurm skips empty
-- names in such a list.
local function in_hold(reservations)
  for name in (reservations or ""):gmatch("[^,%s]+") do
    if name:match("^hetsched") then return true end
  end
  return false
end
local MAX_SET, MAX_REQUIREMENTS, MAX_COUNT = 16, 8, 1000000
local MAX_MEMORY_MB = 10 * 1024 * 1024
local MAX_MARK = 1024
-- Slurm serves nobody else while this module runs: it reads no more of a script, and of its options.
local MAX_LINES, MAX_LINE = 1000, 4096
local SPANK = "^_SLURM_SPANK_OPTION_hetsched_([%w_]+)=(.*)$"

local function fail(text)
  slurm.log_user("hetsched: %s", text)
  error({ refused = true })
end

local function integer(value) return string.format("%d", value) end

-- Slurm's way of saying that a number was not given depends on the field's width.
local function given(value)
  return value ~= nil and value ~= slurm.NO_VAL and value ~= slurm.NO_VAL16 and value ~= slurm.NO_VAL8
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

local function short_enough(what, text)
  if #text > MAX_LINE then
    fail(what .. " has " .. #text .. " characters; at most " .. MAX_LINE .. " are allowed")
  end
end

-- What turns the text of an option into JSON, or refuses it.

local function refuse(name, value, form) fail("--" .. name .. "=" .. value .. ": expected " .. form) end

local function words(pattern, form)
  return function(name, value)
    if not value:match(pattern) then refuse(name, value, form) end
    return '"' .. value .. '"'
  end
end

local function list_of(pattern, form)
  return function(name, value)
    for part in (value .. ","):gmatch("([^,]*),") do
      if not part:match(pattern) then refuse(name, value, form) end
    end
    return '"' .. value .. '"'
  end
end

local function memory(name, value)
  local count, unit = value:match("^(%d+)([MG])$")
  local mb = (tonumber(count) or 0) * (unit == "G" and 1024 or 1)
  if mb < 1 or mb > MAX_MEMORY_MB then refuse(name, value, "the memory of one GPU, for example 40G or 24000M") end
  return '"' .. value .. '"'
end

local function number(name, value)
  local found = value:match("^[%d.eE+-]+$") and tonumber(value)
  if not (found and found > 0 and found < math.huge) then refuse(name, value, "a number above 0") end
  return string.format("%.17g", found)
end

-- No training is larger; a policy that reckons with it must not meet numbers beyond all bounds.
local MAX_SAMPLES = 1e15

local function samples(name, value)
  local text = number(name, value)
  if tonumber(value) > MAX_SAMPLES then refuse(name, value, "at most 1e15 samples") end
  return text
end

local function scaling(name, value)
  if value ~= "linear" and value ~= "sqrt" and value ~= "none" then
    refuse(name, value, "linear, sqrt or none")
  end
  return '"' .. value .. '"'
end

local function shapes(name, value)
  if value ~= "even" and value ~= "any" then
    refuse(name, value, "even, the same count on each node, or any, also uneven counts and mixed GPU types")
  end
  return '"' .. value .. '"'
end

local function flag(name, value)
  if value ~= "" then fail("--" .. name .. " takes no value, and got '" .. value .. "'") end
  return "true"
end

local MAX_ELEMENTS = 16

local function copies(name, value)
  local count = value == "" and MAX_ELEMENTS or value:match("^%d%d?$") and tonumber(value) or 0
  if count < 2 or count > MAX_ELEMENTS then
    refuse(name, value, "how many copies there may be, 2 to " .. MAX_ELEMENTS .. ", or nothing for " .. MAX_ELEMENTS)
  end
  return integer(count)
end

local OPTIONS = {
  ["gpu-set"] = words("^[%d,-]+$", "GPU counts, for example 1,2,4-8"),
  ["gpu-types"] = list_of("^[%w_.-]+$", "GPU types, for example a100,v100"),
  ["gpu-mem"] = memory,
  ["gpu-shapes"] = shapes,
  ["copies"] = copies,
  ["learning-rate"] = number,
  ["lr-scaling"] = scaling,
  ["profile-key"] = words("^[%w_.-]+$", "letters, digits, '_', '.' and '-'"),
  ["total-samples"] = samples,
  ["no-move"] = flag,
  ["can-checkpoint"] = flag,
}
local NAMES = { "gpu-set", "gpu-types", "gpu-mem", "gpu-shapes", "copies", "learning-rate", "lr-scaling",
                "profile-key", "total-samples", "no-move", "can-checkpoint" }

-- The options of the script's `#HETSCHED` lines, which end where sbatch's own do.
local function lines_of(script, found)
  local from, lines = {}, 0
  for line in script:gmatch("[^\r\n]+") do
    lines = lines + 1
    if lines > MAX_LINES then break end
    local rest = line:match("^#HETSCHED%s+(.*)$")
    if rest then
      short_enough("a #HETSCHED line", rest)
      for word in rest:gmatch("%S+") do
        local name, value = word:match("^%-%-([%w-]+)=?(.*)$")
        local told = #word > 60 and word:sub(1, 60) .. "..." or word
        if not name then
          fail("'" .. told .. "' on a #HETSCHED line is no option; write them as --gpu-set=2, and nothing else")
        end
        if not OPTIONS[name] then
          fail("unknown option '" .. told .. "'; known: --" .. table.concat(NAMES, ", --"))
        end
        if from[name] then
          fail("--" .. name .. " stands twice on #HETSCHED lines, as '" .. from[name] .. "' and '" .. told ..
               "'; leave one")
        end
        from[name] = told
        found[name] = value
      end
    elseif line:sub(1, 60):lower():match("^#%s*hetsched[%s:]+%-%-") then
      slurm.log_user("hetsched: '%s' is a comment; options stand on lines that begin with '#HETSCHED '", line:sub(1, 60))
    elseif not line:match("^#") and line:match("%S") then
      break
    end
  end
end

-- The options that sbatch took through the SPANK plug-in; they win over the lines.
local function natives_of(jd, found)
  for i = 0, (jd.spank_job_env_size or 0) - 1 do
    local name, value = (jd.spank_job_env[i] or ""):match(SPANK)
    name = name and name:gsub("_", "-")
    if name and OPTIONS[name] then
      short_enough("--" .. name, value)
      found[name] = value == "(null)" and "" or value
    end
  end
end

-- What a line `#SBATCH --signal=[{R|B}:]SIGNAL[@SECONDS]` of the script says; Slurm does not show it.
local function signal_of(script)
  local lines = 0
  for line in script:gmatch("[^\r\n]+") do
    lines = lines + 1
    if lines > MAX_LINES then return nil end
    local value = line:match("^#SBATCH%s.*%-%-signal[=%s]([%w:@+]+)")
    if value then return value end
    if not line:match("^#") and line:match("%S") then return nil end
  end
end

local function nonce()
  local file = assert(io.open("/dev/urandom", "rb"))
  local bytes = file:read(8)
  file:close()
  return (bytes:gsub(".", function(c) return string.format("%02x", c:byte()) end))
end

-- The GPUs that "gres/gpu:a100:4,license/x:1" asks for: count, types ("" for any), what else it holds.
local function gpus_in(tres)
  local count, kind, rest = nil, "", nil
  for part in (tres or ""):gmatch("[^,]+") do
    local tail = part:match("^gres[/:]gpu(.*)$") or part:match("^gpu(.*)$")
    if tail then
      count = (count or 0) + tonumber(tail:match("[:=](%d+)$") or 1)
      local its = tail:match("^:([^:=]+)[:=]%d+$") or tail:match("^:(%a[^:=]*)$") or ""
      kind = kind == "" and its or kind .. "," .. its
    else
      rest = rest and rest .. "," .. part or part
    end
  end
  return count, kind, rest
end

-- What the user's own options ask for: GPUs in all, their type, nodes; nil, "", nil where not told.
local function asked(jd)
  local nodes = given(jd.min_nodes) and jd.min_nodes > 0 and jd.min_nodes or nil
  local in_all, kind = gpus_in(jd.tres_per_job)
  if in_all then return in_all, kind, nodes end
  local by_task, its = gpus_in(jd.tres_per_task)
  if by_task then return by_task * (given(jd.num_tasks) and jd.num_tasks or nodes or 1), its, nodes end
  local each
  each, its = gpus_in(jd.tres_per_node)
  return each and each * (nodes or 1), its, nodes
end

-- slurm.h: a number of tasks was given, and srun is told the one that the job has when it starts. Else
-- it is told --ntasks-per-node of the submission for each node that the job has then.
local NTASKS_SET = 0x4000

-- Say how many tasks a job has that has more than one on each node; where its count is another, as
-- many for each GPU as it asked for, and their CPUs. What a script alone says of that does not count.
local function say_tasks(jd, count, before, nodes)
  local each = given(jd.ntasks_per_node) and jd.ntasks_per_node or 0
  local tasks = given(jd.num_tasks) and jd.num_tasks or each * nodes
  if tasks <= nodes then
    local step = jd.script:gsub("\\\n", " "):match("\n[ \t]*srun%s[^\n]*(%-%-ntasks%-per%-node[=%s]%d+)")
    if each == 0 and step then
      slurm.log_user("hetsched: srun %s starts one task on each node all the same; with #SBATCH %s, too, there are as many for each GPU on any count", step, step)
    end
    return
  end
  local function scaled(number, least) return math.max(least, math.floor(number * count / before)) end
  jd.num_tasks = scaled(tasks, nodes)
  if math.floor(jd.bitflags / NTASKS_SET) % 2 == 0 then jd.bitflags = jd.bitflags + NTASKS_SET end
  if each > 1 then jd.ntasks_per_node = scaled(each, 1) end
  if given(jd.min_cpus) then jd.min_cpus = math.floor(jd.min_cpus * jd.num_tasks / tasks) end
end

-- Why a job with options cannot be one, or nil.
local function unsupported(jd, found)
  if given(jd.het_job_offset) then
    return "heterogeneous jobs with a requirement set are not supported; leave --gpu-set out"
  end
  if not jd.script then
    return "only jobs of sbatch can be stopped and started elsewhere; leave --gpu-set out here"
  end
  local arrays = found["copies"] or found["gpu-shapes"] == "any"
  if arrays and jd.array_inx ~= nil and jd.array_inx ~= "" then
    return "--copies and --gpu-shapes=any make arrays of their own; submit the jobs one by one"
  end
  if (select(2, gpus_in(jd.tres_per_node)) .. select(2, gpus_in(jd.tres_per_job))):find(",") then
    return "GPUs of several types at once do not go with --gpu-set; name the types with --gpu-types"
  end
  local other = select(3, gpus_in(jd.tres_per_node)) or select(3, gpus_in(jd.tres_per_job))
  if other then return "'" .. other .. "' does not go with --gpu-set; only GPUs do" end
  return nil
end

-- A gang: a job of several elements of an array, each with one count of GPUs on each of its nodes.

-- How many different counts there can be on the nodes of a job that has at most so many GPUs.
local function elements_for(largest)
  local found = 1
  while (found + 1) * (found + 2) / 2 <= largest and found < MAX_ELEMENTS do found = found + 1 end
  return found
end

-- Every element runs the script, once all that take part have started: those that the daemon has
-- placed, with the first, which leads. Where that has started by itself the daemon is away: it runs
-- alone, in the shape that was submitted, and the others end at once.
local GUARD = "until p=$(squeue -ho %v -j ${SLURM_ARRAY_JOB_ID}_0); do [ $? = 127 ] && exit 127; sleep 1; done; " ..
  "case $p,${SLURM_JOB_RESERVATION-} in hetsched*,hetsched*) " ..
  "until p=$(squeue -hro %v -t PD -j $SLURM_ARRAY_JOB_ID) && case $p in *hetsched*) false;; esac; do sleep 1; done;; " ..
  "*) [ $SLURM_ARRAY_TASK_ID = 0 ] || exit 0;; esac # hetsched"

local SHELLS = { sh = true, bash = true, dash = true, ksh = true, zsh = true }

-- What runs a script with such a first line: `bash` of `#!/bin/bash -l` and `#!/usr/bin/env -S bash -l`.
local function interpreter(first)
  local through_env = false
  for word in first:sub(3):gmatch("%S+") do
    local name = word:match("[^/]*$")
    if through_env and not word:match("^%-") or not through_env and name ~= "env" then return name end
    through_env = true
  end
end

local function array(jd, elements)
  jd.array_inx = "0-" .. integer(elements - 1)
  slurm.log_user("hetsched: the job is an array, whose first element leads: what is to wait for it names that, as in --dependency=afterok:ID_0")
end

local function gang(jd, elements)
  local first, rest = jd.script:match("^(#![^\n]*)\n(.*)$")
  if not SHELLS[first and interpreter(first) or ""] then
    fail("--gpu-shapes=any needs a shell script, whose first line is for example #!/bin/bash")
  end
  jd.script = first .. "\n" .. GUARD .. "\n" .. rest
  jd.environment["HETSCHED_ELEMENTS"] = integer(elements)
  -- Of a job that submits this one.
  jd.environment["SLURM_JOB_RESERVATION"] = ""
  array(jd, elements)
end

-- Why a job cannot be made of copies, or nil. Each of them starts and ends by itself, so that its
-- script needs no line of ours: started by Slurm itself, all that there is room for run.
local function no_copies(found, nodes)
  if not found["can-checkpoint"] then
    return "--copies without --can-checkpoint: a copy is stopped when another job gets its node"
  end
  if found["no-move"] then
    return "--copies does not go with --no-move, nor with --no-requeue: copies are started and stopped"
  end
  if found["gpu-shapes"] == "any" then
    return "--copies does not go with --gpu-shapes=any: a copy has all GPUs of one node"
  end
  if nodes > 1 then
    return "--copies: the default count is for one node, and asks for " .. integer(nodes) ..
           "; choose another with --gpus=COUNT, of the set"
  end
end

local function described(jd, found, elements)
  local id = nonce()
  -- When it was submitted: Slurm forgets that when a job is queued again.
  local parts = { '"nonce":"' .. id .. '"', '"submitted":' .. integer(os.time()) }
  if elements > 1 then parts[#parts + 1] = '"elements":' .. integer(elements) end
  for _, name in ipairs(NAMES) do
    if found[name] then parts[#parts + 1] = '"' .. name .. '":' .. OPTIONS[name](name, found[name]) end
  end
  local signal = signal_of(jd.script or "")
  if signal then parts[#parts + 1] = '"signal":"' .. signal .. '"' end
  local text = "hetsched/2 {" .. table.concat(parts, ",") .. "}"
  if #text > MAX_MARK then
    fail("the options are too long: " .. #text .. " characters of mark, at most " .. MAX_MARK .. " are allowed")
  end
  return text, id
end

-- What the job's own launcher needs of its options; the script gets no AdminComment.
local function tell(jd, id, found, count)
  jd.environment["HETSCHED_NONCE"] = id
  if found["learning-rate"] then
    jd.environment["HETSCHED_LR_GIVEN"] = found["learning-rate"]
    jd.environment["HETSCHED_LR_GPUS"] = integer(count)
    jd.environment["HETSCHED_LR_SCALING"] = found["lr-scaling"] or "none"
  end
end

local STALE = { SLURM_GPUS = "", SLURM_GPUS_PER_NODE = "", SLURM_GPUS_PER_TASK = "" }

local function mark(jd)
  if in_hold(jd.reservation) then
    fail("--reservation=" .. jd.reservation .. " is the scheduler's own, into which it places jobs; leave it out")
  end
  local found = {}
  lines_of(jd.script or "", found)
  natives_of(jd, found)
  if next(found) == nil then return end
  for _, name in ipairs(NAMES) do
    if found[name] then OPTIONS[name](name, found[name]) end
  end
  if not found["gpu-set"] then fail("options without --gpu-set=COUNTS, for example --gpu-set=1,2,4") end
  if found["lr-scaling"] and not found["learning-rate"] then
    fail("--lr-scaling without --learning-rate=RATE, the rate that it scales")
  end
  local list, set = counts_of(found["gpu-set"])
  local why = unsupported(jd, found)
  if why then fail(why) end
  local each = gpus_in(jd.tres_per_task) or 1
  for _, count in ipairs(list) do
    -- srun gives each task so many, or none.
    if each > 0 and count % each ~= 0 then
      fail("on " .. integer(count) .. " GPUs some would be without a task of --gpus-per-task=" .. integer(each) .. "; let --gpu-set have its multiples alone, or leave --gpus-per-task out")
    end
  end
  local count, kind, nodes = asked(jd)
  if kind ~= "" then
    local types = found["gpu-types"] or kind
    if not ("," .. types .. ","):find("," .. kind .. ",", 1, true) then
      fail("GPUs of type " .. kind .. " are asked for, and --gpu-types=" .. types .. " leaves them out")
    end
    found["gpu-types"] = types
  end
  -- In the shape that it is submitted in the job starts where the daemon is away.
  local before = count ~= 0 and count or nil
  if not (count and set[count]) then
    count = list[1]
    jd.tres_per_job, jd.tres_per_node, jd.tres_per_socket = "gres/gpu:" .. integer(count), "", ""
    jd.tres_per_task = select(3, gpus_in(jd.tres_per_task)) or ""
  end
  say_tasks(jd, count, before or count, nodes or 1)
  -- Slurm would hold on to it where the count is another; srun has it from its environment.
  if given(jd.ntasks_per_tres) then jd.ntasks_per_tres = slurm.NO_VAL16 end
  if jd.requeue == 0 then found["no-move"] = "" else jd.requeue = 1 end
  local elements = found["gpu-shapes"] == "any" and elements_for(list[#list]) or 1
  if found["copies"] then
    local none = no_copies(found, nodes or 1)
    if none then fail(none) end
    elements = tonumber(copies("copies", found["copies"]))
  end
  local text, id = described(jd, found, elements)
  tell(jd, id, found, count)
  -- srun would take its defaults from what was submitted, and not from what the run was given.
  for name, value in pairs(STALE) do
    if jd.environment[name] then jd.environment[name] = value end
  end
  if found["copies"] then
    jd.environment["HETSCHED_COPIES"] = integer(elements)
    array(jd, elements)
  elseif elements > 1 then
    gang(jd, elements)
  end
  -- Last, so that a failure above leaves no mark.
  jd.admin_comment = text
end

function M.submit(jd, parts, uid)
  if (jd.admin_comment or ""):match("^hetsched/") then jd.admin_comment = "" end
  local ok, problem = pcall(mark, jd)
  if ok then return slurm.SUCCESS end
  if type(problem) == "table" and problem.refused then return slurm.ERROR end
  slurm.log_error("hetsched: %s", tostring(problem))
  return slurm.SUCCESS
end

-- Field -> the name under which scontrol takes it: what the daemon sets when it places a job.
local PLACED = {
  tres_per_node = "TresPerNode", tres_per_job = "TresPerJob", tres_per_task = "TresPerTask",
  tres_per_socket = "TresPerSocket", req_nodes = "ReqNodeList", num_tasks = "NumTasks",
  min_nodes = "NumNodes", max_nodes = "NumNodes", ntasks_per_node = "TasksPerNode",
  partition = "Partition",
}

local function touched(jd)
  for name, shown in pairs(PLACED) do
    if given(jd[name]) then return shown end
  end
end

function M.modify(jd, rec, parts, uid)
  -- Others may not touch the job anyway, but for operators, of whom the daemon is one.
  if uid == 0 or uid ~= rec.user_id then return slurm.SUCCESS end
  if in_hold(jd.reservation) then
    slurm.log_user("hetsched: ReservationName=%s is the scheduler's own, into which it places jobs", jd.reservation)
    return slurm.ERROR
  end
  local edit
  if in_hold(rec.resv_name) then edit = jd.reservation ~= nil and "ReservationName" or touched(jd) end
  if edit == nil then return slurm.SUCCESS end
  slurm.log_user("hetsched has placed this job: %s is not yours to change now", edit)
  return slurm.ERROR
end

return M
