"""Make the tables and figures of the papers, and print the papers' numbers next to ours.

biovl reproduce list
biovl reproduce biomedclip_s1 --set folder=DIR --dry-run
biovl reproduce biomedclip_s1,biomedclip_s2 --set folder=DIR --set use.figures=FIGURES
biovl reproduce biomedica_3 --set folder=DIR --set size=small

Names of tables may be joined by commas. The name of a paper stands for all of its tables, and "all"
for every table.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from biovl.core.arguments import settings_parser
from biovl.core.errors import BiovlError
from biovl.core.overrides import changes_of
from biovl.runtime.command_line import end_interrupted

_SETTINGS = """
settings:
  folder       where every step publishes, local or s3:// (required)
  size         paper (as published, the default), or small: the same steps on synthetic articles
               and drawn images, in minutes; its numbers mean nothing
  data_root    the folder with the data of benchmarks, as biovl prepare publishes it
  use.STEP     a published folder, or a model by name, in place of a step: use.figures=DIR,
               use.biomedclip=hf-hub:OWNER/NAME
  JOB.SETTING  a setting of all steps of a job: pretrain.workers.count=16
  STEP.SETTING a setting of one step: biomedclip.workers.count=16
  name         suffix of folders whose settings differ from those published
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. The last line of standard output is a summary as JSON.

    Ends with status 1 if a step failed or is known to fail, and with 2 if a request cannot be met.

    Args:
        arguments: Command-line arguments; by default those of the process.
    """
    parsed = _parser().parse_args(arguments)
    try:
        values = changes_of(parsed.changes)
        failed = _list(values) if parsed.table == "list" else _reproduce(parsed, values)
    except BiovlError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        end_interrupted()
    if failed:
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = settings_parser(__doc__, _SETTINGS, "a setting, see below; repeat for more")
    parser.add_argument("table", help="names of tables, or list")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print steps, states, hours and what has to be provided, and exit",
    )
    return parser


def _list(values: dict[str, Any]) -> bool:
    from biovl.chain.reproduce import graph, report
    from biovl.chain.reproduce.papers import read_papers

    papers = read_papers()
    settings = graph.read_settings({"folder": "reproduced", **values}, papers)
    graphs = {name: graph.build(papers, [table], settings) for name, table in papers.tables.items()}
    graph.reject_unused(graphs.values(), settings)
    print(report.listing(papers, graphs))
    return False


def _reproduce(parsed: argparse.Namespace, values: dict[str, Any]) -> bool:
    from biovl.chain.reproduce import graph, hours, report
    from biovl.chain.reproduce.cells import cells
    from biovl.chain.reproduce.job import foresee, run_graph, survey
    from biovl.chain.reproduce.papers import choose, read_papers
    from biovl.runtime.terminal import filter_false_alarms

    papers = read_papers()
    tables = choose(papers, parsed.table)
    settings = graph.read_settings(values, papers)
    steps = graph.build(papers, tables.values(), settings)
    graph.reject_unused([steps], settings)
    if parsed.dry_run:
        survey(steps)
        failing = foresee(steps)
        print(report.plan(steps, steps.links(), hours.costs(steps, papers), failing), end="")
        return bool(failing)
    with filter_false_alarms():
        outcome = run_graph(steps)
    found = {name: cells(table, steps, outcome) for name, table in tables.items()}
    for name, table in tables.items():
        print(report.write(name, table, papers, found[name], steps))
    print(json.dumps(report.summary(found, steps, outcome)))
    return bool(outcome.failed)
