-- hetsched's side of sbatch. slurmctld runs this file; it lies beside slurm.conf.
--
-- A job with --gpu-set (an option of sbatch where the SPANK plug-in is installed, or a `#HETSCHED`
-- line in its script) is checked and marked: AdminComment becomes `hetsched/1 {...}` with a nonce.
-- In a partition that `hetsched_enforce` names (one per line, then the GPUs of its greatest node and
-- its GPU types; a file of root's beside this one) it is also kept back by a begin time, in the shape of its default
-- count; if nobody moves that begin time on, Slurm starts the job itself. All other jobs pass.

local ENFORCE = "hetsched_enforce"
local SLACK_S = 60            -- how long a job waits for the daemon before Slurm starts it
local MAX_NODES = 64          -- most nodes of one placement
local MAX_SET, MAX_REQUIREMENTS, MAX_COUNT = 16, 8, 1000000
local MAX_MEMORY_MB = 10 * 1024 * 1024
local MAX_MARK = 1024
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
  local from = {}
  for line in script:gmatch("[^\r\n]+") do
    local rest = line:match("^#HETSCHED%s+(.*)$")
    if rest then
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
    elseif line:lower():match("^#%s*hetsched[%s:]+%-%-") then
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
    if name and OPTIONS[name] then found[name] = value == "(null)" and "" or value end
  end
end

-- What a line `#SBATCH --signal=[{R|B}:]SIGNAL[@SECONDS]` of the script says; Slurm shows it to nobody.
local function signal_of(script)
  for line in script:gmatch("[^\r\n]+") do
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

local function folder()
  local conf = os.getenv("SLURM_CONF") or "/etc/slurm/slurm.conf"
  return conf:match("^(.*)/[^/]*$") or "."
end

-- Partition -> GPUs of its greatest node (0 where the list does not tell); partition -> its types.
local function enforced_partitions()
  local found, types = {}, {}
  local file = io.open(folder() .. "/" .. ENFORCE)
  if not file then return found, types end
  for line in file:lines() do
    local name, gpus, kinds = line:match("^%s*([^%s#]+)%s*(%d*)%s*([^%s#]*)")
    if name then found[name], types[name] = tonumber(gpus) or 0, kinds end
  end
  file:close()
  return found, types
end

-- Whether one of "a,b" is enforced, the GPUs of its nodes, whether it stands alone, and its types
-- ("" where the list does not tell).
local function enforced(partitions)
  local listed, types = enforced_partitions()
  local names, gpus, kinds = 0, nil, ""
  for name in (partitions or ""):gmatch("[^,]+") do
    names = names + 1
    gpus, kinds = listed[name] or gpus, types[name] or kinds
  end
  return gpus ~= nil, gpus, names == 1, kinds
end

local function default_partition(parts)
  for name, part in pairs(parts) do
    if part.flag_default == 1 then return name end
  end
  return ""
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
  local each, its = gpus_in(jd.tres_per_node)
  return each and each * (nodes or 1), its, nodes
end

-- Fields that would take the choice of nodes from the daemon -> what to say of them.
local CHOOSES_NODES = {
  { "req_nodes", "--nodelist" }, { "exc_nodes", "--exclude" }, { "features", "--constraint" },
  { "reservation", "--reservation" },
}

-- Why the daemon cannot manage such a job, or nil.
local function unsupported(jd, alone)
  local function has(name) return jd[name] ~= nil and jd[name] ~= "" end
  if given(jd.het_job_offset) then
    return "heterogeneous jobs with a requirement set are not supported; leave --gpu-set out"
  end
  if not jd.script then
    return "only jobs of sbatch can be stopped and started elsewhere; leave --gpu-set out here"
  end
  if has("array_inx") then
    return "arrays of jobs with a requirement set are not supported; submit them one by one"
  end
  if not alone then return "--partition=" .. jd.partition .. ": a job with --gpu-set goes to one partition" end
  for _, pair in ipairs(CHOOSES_NODES) do
    if has(pair[1]) then
      return pair[2] .. " does not go with --gpu-set, for which the daemon chooses the nodes; " ..
             "say what the job can use with --gpu-types and --gpu-mem"
    end
  end
  if given(jd.shared) and jd.shared ~= 1 then
    return "--exclusive does not go with --gpu-set; put the GPUs of a whole node into the set"
  end
  if gpus_in(jd.tres_per_task) or has("tres_per_socket") or given(jd.ntasks_per_tres) then
    return "--gpus-per-task, --gpus-per-socket and --ntasks-per-gpu do not go with --gpu-set, under " ..
           "which there is one task a node; ask with --gpus=COUNT"
  end
  if (select(2, gpus_in(jd.tres_per_node)) .. select(2, gpus_in(jd.tres_per_job))):find(",") then
    return "GPUs of several types at once do not go with --gpu-set; name the types with --gpu-types"
  end
  local other = select(3, gpus_in(jd.tres_per_node)) or select(3, gpus_in(jd.tres_per_job))
  if other then return "'" .. other .. "' does not go with --gpu-set; only GPUs do" end
  return nil
end

-- Refuse types that are not there: Slurm would say only that it has no such node.
local function check_types(wanted, there, partition)
  if there == "" then return end
  for name in wanted:gmatch("[^,]+") do
    if not ("," .. there .. ","):find("," .. name .. ",", 1, true) then
      fail("--gpu-types=" .. wanted .. ": partition " .. partition .. " has no " .. name .. "; it has " .. there)
    end
  end
end

-- On how many nodes a job waits, with as many GPUs on each; `most` is what the greatest node has.
local function nodes_for(count, wanted, most)
  local hint = "; choose another with --gpus=COUNT, of the set, and --nodes=N"
  local on = most > 0 and ", at most " .. most .. " on each" or ""
  for nodes = wanted or 1, wanted or MAX_NODES do
    if count % nodes == 0 and (most == 0 or count / nodes <= most) then return nodes end
  end
  fail("the default count " .. count .. " cannot be spread evenly over " ..
       (wanted and wanted .. " nodes" or "nodes") .. on .. hint)
end

local function with_flag(bits, bit)
  return math.floor(bits / bit) % 2 == 1 and bits or bits + bit
end

-- A gang: a job of several elements of an array, each with one count of GPUs on each of its nodes.

-- How many different counts there can be on the nodes of a job that has at most so many GPUs.
local function elements_for(largest, most)
  local found = 1
  while (found + 1) * (found + 2) / 2 <= largest and found < (most > 0 and most or MAX_ELEMENTS) do
    found = found + 1
  end
  return math.min(found, MAX_ELEMENTS)
end

-- What the members of array %s wait for while they are spare: it cannot be.
local NEVER = "afterok:%s_0,afternotok:%s_0"

-- Every element runs the script, once all that take part have started. Only the daemon pins an
-- element to nodes. Where the first, which leads, has started without a pin, the daemon is away: it
-- runs alone, in its default count, and its spares are set aside (what they wait for cannot be, and
-- Slurm cancels them when it ends); a spare that starts all the same ends at once.
local GUARD = "until p=$(squeue -ho %%n -j ${SLURM_ARRAY_JOB_ID}_0); do [ $? = 127 ] && exit 127; sleep 1; done; " ..
  "if [ -n \"$p\" ]; then " ..
  "until p=$(squeue -hro %%n -t PD -j $SLURM_ARRAY_JOB_ID) && [ -z \"$(echo $p)\" ]; do sleep 1; done; " ..
  "elif [ $SLURM_ARRAY_TASK_ID = 0 ]; then scontrol update JobId=${SLURM_ARRAY_JOB_ID}_[1-%d] " ..
  "Dependency=" .. NEVER:gsub("%%s", "${SLURM_ARRAY_JOB_ID}") .. " 2>/dev/null; " ..
  "else exit 0; fi # hetsched"

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

-- An array of so many elements, of which Slurm cancels those that wait for what cannot be.
local function array(jd, elements)
  jd.array_inx = "0-" .. integer(elements - 1)
  jd.bitflags = with_flag(jd.bitflags, slurm.KILL_INV_DEP or 1)
  slurm.log_user("hetsched: the job is an array, whose first element leads: what is to wait for it names that, as in --dependency=afterok:ID_0")
end

local function gang(jd, elements)
  local first, rest = jd.script:match("^(#![^\n]*)\n(.*)$")
  if not SHELLS[first and interpreter(first) or ""] then
    fail("--gpu-shapes=any needs a shell script, whose first line is for example #!/bin/bash")
  end
  jd.script = first .. "\n" .. string.format(GUARD, elements - 1) .. "\n" .. rest
  jd.environment["HETSCHED_ELEMENTS"] = integer(elements)
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

local function described(jd, found, count, nodes, begin, shadow, elements)
  local id = nonce()
  -- When it was submitted: Slurm forgets that when a job is queued again.
  local parts = { '"nonce":"' .. id .. '"', '"default":' .. integer(count), '"submitted":' .. integer(os.time()) }
  if shadow then parts[#parts + 1] = '"shadow":true' end
  if nodes > 1 then parts[#parts + 1] = '"nodes":' .. integer(nodes) end
  if (elements or 1) > 1 then parts[#parts + 1] = '"elements":' .. integer(elements) end
  for _, name in ipairs(NAMES) do
    if found[name] then parts[#parts + 1] = '"' .. name .. '":' .. OPTIONS[name](name, found[name]) end
  end
  if begin then parts[#parts + 1] = '"begin":' .. integer(begin) end
  -- CPUs that are asked for by GPU; the daemon reads everything else from the job.
  local cpus = (jd.cpus_per_tres or ""):match("gpu:(%d+)$")
  if cpus then parts[#parts + 1] = '"cpus":' .. cpus end
  local signal = signal_of(jd.script or "")
  if signal then parts[#parts + 1] = '"signal":"' .. signal .. '"' end
  -- Minutes; 4294967294 and 4294967295 are Slurm's for none given, and for none at all.
  local limit = jd.time_limit
  if given(limit) and limit < 4294967294 then parts[#parts + 1] = '"limit":' .. integer(limit) end
  local text = "hetsched/1 {" .. table.concat(parts, ",") .. "}"
  if #text > MAX_MARK then
    fail("the options are too long: " .. #text .. " characters of mark, at most " .. MAX_MARK .. " are allowed")
  end
  return text, id
end

local STALE = { SLURM_GPUS = "", SLURM_GPUS_PER_NODE = "", SLURM_NTASKS_PER_NODE = "1" }

-- What the job's own launcher needs of its options; the script gets no AdminComment.
local function tell(jd, id, found, count)
  jd.environment["HETSCHED_NONCE"] = id
  if found["learning-rate"] then
    jd.environment["HETSCHED_LR_GIVEN"] = found["learning-rate"]
    jd.environment["HETSCHED_LR_GPUS"] = integer(count)
    jd.environment["HETSCHED_LR_SCALING"] = found["lr-scaling"] or "none"
  end
end

local function mark(jd, parts, now)
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
  local partition = jd.partition or default_partition(parts)
  local kept, most, alone, types = enforced(partition)
  local why = unsupported(jd, alone)
  if why and kept then fail(why) elseif why then return end
  local count, kind, nodes = asked(jd)
  if not (count and set[count]) then count = list[1] end
  if kind ~= "" then
    local types = found["gpu-types"] or kind
    if not ("," .. types .. ","):find("," .. kind .. ",", 1, true) then
      fail("GPUs of type " .. kind .. " are asked for, and --gpu-types=" .. types .. " leaves them out")
    end
    found["gpu-types"] = found["gpu-types"] or kind
  end
  if kept then check_types(found["gpu-types"] or "", types, partition) end
  -- Who wants no requeue can be stopped, but not started again.
  if jd.requeue == 0 then found["no-move"] = "" end
  local begin = (jd.begin_time or 0) > now and jd.begin_time or nil
  if not kept then
    local id
    jd.admin_comment, id = described(jd, found, count, 1, begin, true)
    if jd.environment then tell(jd, id, found, count) end
    return
  end
  nodes = nodes_for(count, nodes, most)
  local elements = found["gpu-shapes"] == "any" and elements_for(list[#list], most) or 1
  if found["copies"] then
    local none = no_copies(found, nodes)
    if none then fail(none) end
    elements = tonumber(copies("copies", found["copies"]))
  end
  local text, id = described(jd, found, count, nodes, begin, false, elements)
  local single = found["gpu-types"] and not found["gpu-types"]:find(",", 1, true) and found["gpu-types"]
  tell(jd, id, found, count)
  -- srun would take its defaults from what was submitted, and not from what the run was given.
  for name, value in pairs(STALE) do
    if jd.environment[name] then jd.environment[name] = value end
  end
  if jd.requeue ~= 0 then jd.requeue = 1 end
  if given(jd.num_tasks) or given(jd.ntasks_per_node) then
    slurm.log_user("hetsched: --ntasks gives way to one task on each node; start one worker per GPU from it")
  end
  if jd.max_nodes == 1 then
    slurm.log_user("hetsched: --nodes=1 is not kept: the job may be placed on several nodes")
  end
  jd.min_nodes = 1
  jd.max_nodes = MAX_NODES
  jd.num_tasks = nodes
  jd.ntasks_per_node = 1
  jd.min_cpus = nodes
  jd.bitflags = with_flag(jd.bitflags, slurm.USE_MIN_NODES)
  jd.tres_per_job = ""
  jd.tres_per_node = "gres/gpu:" .. (single and single .. ":" or "") .. integer(count / nodes)
  -- From the time that the user names, the daemon has this long to act.
  jd.begin_time = math.max(begin or 0, now) + SLACK_S
  if found["copies"] then
    jd.environment["HETSCHED_COPIES"] = integer(elements)
    array(jd, elements)
  elseif elements > 1 then
    gang(jd, elements)
  end
  -- Last, so that a failure above leaves no mark.
  jd.admin_comment = text
  if nodes > 1 then
    slurm.log_user("hetsched: until it is placed it asks Slurm for %d nodes of %d GPUs, and is refused where there are not so many; --nodes=N chooses others",
                   nodes, count / nodes)
  end
end

function slurm_job_submit(jd, parts, uid)
  if (jd.admin_comment or ""):match("^hetsched/") then jd.admin_comment = "" end
  local ok, problem = pcall(mark, jd, parts, os.time())
  if ok then return slurm.SUCCESS end
  if type(problem) == "table" and problem.refused then return slurm.ERROR end
  slurm.log_error("hetsched: %s", tostring(problem))
  return slurm.SUCCESS
end

-- Field -> the name under which scontrol takes it.
local GUARDED = {
  tres_per_node = "TresPerNode", tres_per_job = "TresPerJob", tres_per_task = "TresPerTask",
  tres_per_socket = "TresPerSocket", req_nodes = "ReqNodeList", exc_nodes = "ExcNodeList",
  features = "Features", reservation = "ReservationName", admin_comment = "AdminComment",
  num_tasks = "NumTasks", min_nodes = "NumNodes", max_nodes = "NumNodes", min_cpus = "NumCPUs",
  max_cpus = "NumCPUs", pn_min_cpus = "MinCPUsNode", ntasks_per_node = "TasksPerNode", begin_time = "StartTime", requeue = "Requeue",
  array_inx = "ArrayTaskThrottle",
}

local function touched(jd)
  for name, shown in pairs(GUARDED) do
    local value = jd[name]
    if given(value) and not (name == "begin_time" and value == 0) then return shown end
  end
  return nil
end

-- Whether an element of a gang that follows its leader would wait for something else than it does.
local function let_go(jd, rec)
  if jd.dependency == nil or not rec.admin_comment:match('"elements":') then return false end
  local follows = given(rec.array_task_id) and rec.array_task_id > 0
  -- The line in the leader's script sets them aside, as the job's owner.
  return follows and jd.dependency ~= NEVER:gsub("%%s", integer(rec.array_job_id))
end

function slurm_job_modify(jd, rec, parts, uid)
  -- Others may not touch the job anyway, but for operators, of whom the daemon is one.
  if uid == 0 or uid ~= rec.user_id then return slurm.SUCCESS end
  if not (rec.admin_comment or ""):match("^hetsched/1 ") then return slurm.SUCCESS end
  local here, there = enforced(rec.partition), enforced(jd.partition)
  local edit = here and touched(jd)
  if edit then
    slurm.log_user("hetsched manages this job: %s is not yours to change", edit)
    return slurm.ERROR
  end
  if here and let_go(jd, rec) then
    slurm.log_user("hetsched manages this job: what its elements but the first wait for is not yours to change")
    return slurm.ERROR
  end
  if (here or there) and jd.partition ~= nil and jd.partition ~= rec.partition then
    slurm.log_user("hetsched manages jobs of one of these partitions: cancel the job and submit it anew")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end

return slurm.SUCCESS
