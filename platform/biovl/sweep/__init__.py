"""The job of ``tune/sweep.py``: many runs of pretrain with different settings."""
