r"""Estimate the cost of a run before it starts: hours, GPU-hours, dollars, storage, network.

python pipelines/plan.py whole_pmc
python pipelines/plan.py bmca_clip --compare
python pipelines/plan.py whole_pmc --set train.instance=p5en.48xlarge --set train.buy=spot \
    --set assume.utilisation=0.9 --set 'assume.image_kb=[90, 120, 150]'

Nothing is started or downloaded. The last line of the output is the plan as JSON.
"""

import json
import sys

from biovl.core import config as configs
from biovl.core.errors import BiovlError
from biovl.plan import report
from biovl.plan.config import RECIPES, PlanConfig


def main() -> int:
    """Print the plan of the command line as text and JSON; return the exit status."""
    config, flags = configs.from_command_line(
        PlanConfig,
        RECIPES,
        about=__doc__,
        flags={"compare": "also compare with what the papers report, for all of them"},
    )
    try:
        plan = report.reckon(config, compare_all="compare" in flags)
    except BiovlError as error:
        print(error, file=sys.stderr)
        return 2
    print(report.render(plan), end="")
    print(json.dumps(report.to_json(plan)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
