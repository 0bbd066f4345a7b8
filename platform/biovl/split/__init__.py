"""The command ``split``: compound figures to panels. ``detector/`` is for ``train_detector``."""
