"""Judging models."""
