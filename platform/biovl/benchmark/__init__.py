"""The command ``benchmark``: metrics of models on tasks, with confidence intervals."""
