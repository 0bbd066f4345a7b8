"""The job ``index``, and search in an index by vectors, words and filters."""
