"""Jobs as Slurm shows them, and as policies see them."""
