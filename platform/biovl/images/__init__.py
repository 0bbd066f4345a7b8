"""Pixels: pure functions over image bytes."""
