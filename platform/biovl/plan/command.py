r"""Estimate the cost of a run before it starts: hours, GPU-hours, dollars, storage, network.

biovl plan whole_pmc
biovl plan bmca_clip --compare
biovl plan whole_pmc --set train.instance=p5en.48xlarge --set train.buy=spot \
    --set assume.utilisation=0.9 --set 'assume.image_kb=[90, 120, 150]'

Nothing is started or downloaded. The last line of the output is the plan as JSON.
"""

import json
import sys

from biovl.core.arguments import from_command_line
from biovl.core.errors import BiovlError
from biovl.plan.config import RECIPES, PlanConfig


def main() -> None:
    """Print the plan of the command line as text and JSON."""
    config, flags = from_command_line(
        PlanConfig,
        RECIPES,
        about=__doc__,
        flags={"compare": "also compare with what the papers report, for all of them"},
    )
    # Counts operations of models, with PyTorch.
    from biovl.plan import report

    try:
        plan = report.reckon(config, compare_all="compare" in flags)
    except BiovlError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    print(report.render(plan), end="")
    print(json.dumps(report.to_json(plan)))
