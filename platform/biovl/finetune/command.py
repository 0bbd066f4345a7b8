r"""Fine-tune a given model on a corpus, and evaluate it before and after.

biovl finetune default --set model=MODEL --set corpus=DIR --set out=DIR
biovl finetune locked_text --set model=ViT-B-16/openai --set corpus=DIR --set out=DIR \
    --set 'retained.xray=zero_shot(data=DIR)'

MODEL is a folder in open_clip's layout, an open_clip name with its weights, or hf-hub:OWNER/NAME.
"""

from biovl.core import lazy
from biovl.finetune.config import RECIPES, FinetuneConfig
from biovl.runtime import command_line


def main() -> None:
    """Run the command line."""
    command_line.main(
        FinetuneConfig,
        RECIPES,
        lazy.function("biovl.finetune.job:finetune"),
        about=__doc__,
        estimate=lazy.function("biovl.finetune.job:dry_run_text"),
    )
