"""The job ``merge``: interpolation of the weights of two models (WiSE-FT)."""
