"""Plug-ins: two-tower models. Each file builds one family of models from its settings."""
