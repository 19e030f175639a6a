"""What clusters and workloads look like in files: Slurm's own output and published traces."""
