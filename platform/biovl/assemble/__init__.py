"""The command ``assemble``: rules, balance, duplicates and splits; figures to a training corpus."""
