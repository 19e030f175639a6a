"""The commands that slurm_plugin adds to `hetsched`."""
