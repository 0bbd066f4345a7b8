"""The search service: deployments, endpoints, batching of the encoder, and the web page."""
