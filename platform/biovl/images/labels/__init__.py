"""Printed panel labels: the letters next to panels, found and read."""

from biovl.images.labels.reading import Label, find_words, read_labels

__all__ = ["Label", "find_words", "read_labels"]
