"""An HTML summary of the results of a chain: ``summary.html``, a single self-contained file.

All its contents come from published folders, except for durations of steps and searches sent to the
service, which are stored in ``story.json``.
"""
