"""The job ``split``: compound figures to panels. ``detector/`` belongs to ``train_detector``."""
