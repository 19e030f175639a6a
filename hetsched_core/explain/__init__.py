"""Why a job waits, and what a policy has decided on it, in words."""
