"""The command ``index``, and search in what it publishes: vectors, words and filters."""
