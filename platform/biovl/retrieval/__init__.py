"""Finding figures: vectors, words and filters over a published index."""
