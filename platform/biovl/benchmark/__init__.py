"""The command ``benchmark``: scores of models with confidence intervals."""
