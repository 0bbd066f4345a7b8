"""Answering questions about images: a module between two towers, trained as METER."""
