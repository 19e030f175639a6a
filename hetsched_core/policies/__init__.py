"""One file for each scheduling system, opening with its source and where it deviates."""
