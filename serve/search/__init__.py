"""The search service: its deployments, endpoints, encoder batching and page."""
