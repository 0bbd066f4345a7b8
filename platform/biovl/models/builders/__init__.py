"""Plug-ins: two-tower models. One file is one family of models, built from its settings."""
