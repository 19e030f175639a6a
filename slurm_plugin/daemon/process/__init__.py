"""The daemon as a process: configuration, database, log, lock, signals."""
