"""biovl: from the open biomedical literature to image-text data, models and services."""

__version__ = "0.1.0"
