"""Ray, for all stages: the connection, tasks with receipts, progress, failures, request limits."""
