"""Benchmark data as distributed to one folder per data set: images, labels, splits, a manifest."""
