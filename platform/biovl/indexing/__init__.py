"""A corpus to an index, in steps that know nothing of Ray."""
