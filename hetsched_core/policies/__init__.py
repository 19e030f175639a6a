"""One file, or one package, for each scheduling system, opening with its source and deviations."""
