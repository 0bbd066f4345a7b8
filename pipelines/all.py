"""Run all jobs from PMC packages to a search index; published steps are not repeated.

python pipelines/all.py laptop --set folder=DIR --set source.path=PACKAGES
python pipelines/all.py pmc --set folder=s3://… --set source.path=s3://… --dry-run
ray job submit -- python pipelines/all.py pmc --set folder=s3://… --set source.path=s3://…
"""

import sys

from biovl.chain import check, links, reports
from biovl.chain.command import from_command_line
from biovl.chain.job import STEPS, run_chain
from biovl.chain.recipes import RECIPES
from biovl.core.errors import BiovlError
from biovl.runtime.terminal import filter_false_alarms


def main() -> None:
    """Run the chain of the command line. The last line of standard output is a summary as JSON."""
    chain, only_shown = from_command_line(STEPS, RECIPES, about=__doc__)
    try:
        if only_shown:
            steps = links(STEPS, chain)
            print(reports.plan(chain, steps), end="")
            check(steps)
            return
        with filter_false_alarms():
            published = run_chain(
                chain, after=lambda links, seconds: reports.note(chain, links, seconds)
            )
    except BiovlError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    page = reports.note(chain, published, {})
    print(f"\n{reports.outcome(chain, published)}\nThe page about it: {page}\n")
    print(reports.summary(chain, published, page))


if __name__ == "__main__":
    main()
