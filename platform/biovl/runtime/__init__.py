"""Ray for all jobs: the connection, tasks with receipts, progress, failures, request limits."""
