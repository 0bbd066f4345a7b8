"""The command ``tune/sweep.py``: many runs of pretrain that differ in some settings."""
