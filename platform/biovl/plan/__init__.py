"""The command ``plan``: hours, storage and cost of a run before it is started."""
