"""Two-tower models: builders, weights, tokenizers, and the encoder that later stages use."""
