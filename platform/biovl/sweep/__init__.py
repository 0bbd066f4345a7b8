"""The job of ``tune/sweep.py``: many runs of pretrain that differ in some settings."""
