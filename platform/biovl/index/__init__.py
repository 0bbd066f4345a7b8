"""The job ``index``, and search in its output: by vectors, words and filters."""
