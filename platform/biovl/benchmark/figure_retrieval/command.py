"""A retrieval task from articles after a cut-off date, in the forms of MTEB and BEIR.

biovl figure_retrieval articles --set figures=figures --set after=2025-06-01 --set out=DIR
biovl figure_retrieval articles … --set 'training=["corpus"]'
"""

from biovl.benchmark.figure_retrieval.config import RECIPES, FigureRetrievalConfig
from biovl.core import lazy
from biovl.runtime import command_line


def main() -> None:
    """Run the command line."""
    command_line.main(
        FigureRetrievalConfig,
        RECIPES,
        lazy.function("biovl.benchmark.figure_retrieval.job:figure_retrieval"),
        about=__doc__,
    )
