"""Synthetic compound figures with complete annotations, for tests, training and benchmarks."""
