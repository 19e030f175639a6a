/*
 * Gives sbatch the options of hetsched: sbatch --gpu-set=1,2,4, or #SBATCH --gpu-set=1,2,4.
 *
 * It only takes their texts to slurmctld, where hetsched.lua checks them. It is needed where sbatch
 * runs and nowhere else: gcc -O2 -fPIC -shared -o hetsched_spank.so hetsched_spank.c
 */
#include <stdio.h>
#include <stdlib.h>
#include <slurm/spank.h>

SPANK_PLUGIN(hetsched, 1)

static struct spank_option options[] = {
	{ "gpu-set", "COUNTS", "GPU counts that the job accepts, for example 1,2,4-8", 1, 0, NULL },
	{ "gpu-types", "TYPES", "GPU types that it accepts, for example a100,v100", 1, 0, NULL },
	{ "gpu-mem", "SIZE", "least memory of each GPU, for example 40G", 1, 0, NULL },
	{ "gpu-shapes", "SHAPES", "even (default), or any: uneven counts and mixed GPU types, too", 1, 0, NULL },
	{ "copies", "N", "run as up to N copies (2 to 16, default 16), each on a whole node", 2, 0, NULL },
	{ "learning-rate", "RATE", "learning rate at the default GPU count", 1, 0, NULL },
	{ "lr-scaling", "RULE", "to other counts: linear, sqrt or none", 1, 0, NULL },
	{ "profile-key", "NAME", "what is trained and how", 1, 0, NULL },
	{ "total-samples", "NUMBER", "size of the whole training", 1, 0, NULL },
	{ "no-move", NULL, "never stop the job to start it elsewhere", 0, 0, NULL },
	{ "can-checkpoint", NULL, "the job saves its state and resumes from it", 0, 0, NULL },
};

/* "gpu-set" -> "gpu_set", as Slurm's variables have it. */
static void forget(const char *name)
{
	char variable[128];
	snprintf(variable, sizeof(variable), "SLURM_SPANK__SLURM_SPANK_OPTION_hetsched_%s", name);
	for (char *at = variable; *at; at++)
		if (*at == '-')
			*at = '_';
	unsetenv(variable);
}

int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
	(void) argc;
	(void) argv;
	/* sbatch and salloc; srun has no script that could be started anew, and does not know them. */
	if (spank_context() != S_CTX_ALLOCATOR)
		return ESPANK_SUCCESS;
	for (size_t at = 0; at < sizeof(options) / sizeof(options[0]); at++) {
		spank_err_t error = spank_option_register(spank, &options[at]);
		if (error != ESPANK_SUCCESS)
			return error;
		/* sbatch within a job would take the options of that job for its own. */
		forget(options[at].name);
	}
	return ESPANK_SUCCESS;
}
