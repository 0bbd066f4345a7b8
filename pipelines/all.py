"""Run the whole chain, from packages to an index: what is published is not done again.

python pipelines/all.py laptop --set folder=DIR --set source.path=PACKAGES
python pipelines/all.py pmc --set folder=s3://… --set source.path=s3://… --dry-run
ray job submit -- python pipelines/all.py pmc --set folder=s3://… --set source.path=s3://…
"""

import sys

from biovl.chain import check, links, telling
from biovl.chain.command import from_command_line
from biovl.chain.job import STEPS, run_chain
from biovl.chain.recipes import RECIPES
from biovl.core.errors import BiovlError
from biovl.runtime.terminal import filter_false_alarms


def main() -> None:
    """Do what the command line asks for. The last line on standard output is a summary as JSON."""
    chain, only_shown = from_command_line(STEPS, RECIPES, about=__doc__)
    try:
        if only_shown:
            found = links(STEPS, chain)
            print(telling.plan(chain, found), end="")
            check(found)
            return
        with filter_false_alarms():
            done = run_chain(
                chain, after=lambda links, seconds: telling.note(chain, links, seconds)
            )
    except BiovlError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    page = telling.note(chain, done, {})
    print(f"\n{telling.outcome(chain, done)}\nThe page about it: {page}\n")
    print(telling.summary(chain, done, page))


if __name__ == "__main__":
    main()
