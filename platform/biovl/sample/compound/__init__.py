"""Drawn compound figures of which all is known: to test, to train and to measure with."""
