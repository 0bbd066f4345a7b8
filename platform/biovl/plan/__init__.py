"""The job ``plan``: estimate hours, storage and cost of a run before it is started."""
