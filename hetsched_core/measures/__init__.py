"""Measures of schedules: from run logs, in fairness, against an accounting log."""
