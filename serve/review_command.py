"""Serve the web page on which people label the clusters of a folder, on this machine.

biovl review concepts=DIR

The same as `serve run serve.review:build …`, of Ray Serve; Ctrl-C ends it. Settings are those of
serve.review.settings. `python -m serve.review` exports and imports votes.
"""

from serve.command import run_application


def main() -> None:
    """Run the application for labelling."""
    run_application("serve.review:build", __doc__)
