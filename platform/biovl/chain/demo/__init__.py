"""``biovl demo``: run all jobs on a synthetic sample, and serve the results."""
