"""What a chain has published, told on one page: ``summary.html``, which needs nothing else.

Everything on it comes from published folders; what they do not say (how long a step took, what the
service was asked) stands beside them in ``story.json``.
"""
