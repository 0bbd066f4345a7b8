"""``biovl demo``: all jobs on a synthetic sample, and the service of what they publish."""
