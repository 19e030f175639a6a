-- For a site that has no job_submit.lua of its own; one that has calls the same module from it.

package.path = (os.getenv("SLURM_CONF") or "/etc/slurm/slurm.conf"):gsub("[^/]*$", "") .. "?.lua;" .. package.path
local hetsched = require("hetsched")

slurm_job_submit, slurm_job_modify = hetsched.submit, hetsched.modify

return slurm.SUCCESS
