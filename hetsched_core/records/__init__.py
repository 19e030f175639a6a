"""What is written down: run logs, decisions to be asked again, what jobs tell."""
