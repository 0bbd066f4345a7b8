"""Printed panel labels: detection and recognition of the letters next to panels."""

from biovl.images.labels.reading import Label, find_words, read_labels

__all__ = ["Label", "find_words", "read_labels"]
