"""Two-tower models: builders, weights, tokenizers, and the encoder for inference."""
