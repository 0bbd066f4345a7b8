"""Retrieval and classification over HTTP: one Ray Serve application."""
