"""What is written down and read again: run logs, decisions, spool files."""
