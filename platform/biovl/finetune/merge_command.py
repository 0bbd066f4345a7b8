"""Interpolate the weights of two models (WiSE-FT) and publish the result as a model.

biovl merge wise_ft --set base=MODEL --set tuned=MODEL --set alpha=0.5 --set out=DIR
biovl merge sweep --set base=MODEL --set tuned=MODEL --set corpus=DIR --set out=DIR
"""

from biovl.core import lazy
from biovl.finetune.merge_config import RECIPES, MergeConfig
from biovl.runtime import command_line


def main() -> None:
    """Run the command line."""
    command_line.main(
        MergeConfig, RECIPES, lazy.function("biovl.finetune.merge_job:merge"), about=__doc__
    )
