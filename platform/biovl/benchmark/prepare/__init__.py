"""Converts raw benchmark data to one folder per data set: images, labels, splits, a manifest."""
