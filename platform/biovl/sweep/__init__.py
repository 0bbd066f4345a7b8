"""The job of ``biovl sweep``: many runs of pretrain with different settings."""
