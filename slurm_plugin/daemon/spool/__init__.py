"""The spool directory: what running jobs tell, and what they are told."""
