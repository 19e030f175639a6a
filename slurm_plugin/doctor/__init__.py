"""What an admin would otherwise find out from failures: `hetsched doctor`."""
