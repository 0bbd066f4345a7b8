"""Retrieval and classification over HTTP: two Ray Serve applications, search and review."""
