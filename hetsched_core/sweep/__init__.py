"""Many replays: policies x workloads x seeds x parameters, resumable, in one table.

A sweep is a TOML file (docs/formats/sweep.md). Each of its runs is one `hetsched replay` of one
policy, named by a digest of what it is given, so that a sweep that was killed goes on with the runs
that are missing.
"""
