"""The main act: one workload through several policies, or what a daemon has only planned."""
