"""The jobs ``finetune`` and ``merge``: adapt a model to a corpus, and interpolate two models."""
