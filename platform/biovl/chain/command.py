"""Run all jobs from PMC packages to a search index; published steps are not repeated.

biovl all laptop --set folder=DIR --set source.path=PACKAGES
biovl all pmc --set folder=s3://… --set source.path=s3://… --dry-run
ray job submit -- biovl all pmc --set folder=s3://… --set source.path=s3://…
"""

import sys
import textwrap
from collections.abc import Mapping, Sequence

from biovl.chain.links import Chain, Step, check, links, read_chain, reject_unused
from biovl.chain.recipes import RECIPES, ChainRecipe
from biovl.chain.steps import STEPS
from biovl.core.arguments import recipes_manual, settings_parser
from biovl.core.errors import BiovlError, ConfigError
from biovl.core.overrides import change_of, changes_of
from biovl.runtime.command_line import end_interrupted


def main() -> None:
    """Run the chain of the command line. The last line of standard output is a summary as JSON."""
    chain, only_shown = from_command_line(STEPS, RECIPES, about=__doc__)
    # Import the jobs only when something is to be done.
    from biovl.chain import reports
    from biovl.chain.job import run_chain
    from biovl.runtime.terminal import filter_false_alarms

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
    except KeyboardInterrupt:
        end_interrupted()
    page = reports.note(chain, published, {})
    print(f"\n{reports.outcome(chain, published)}\nHTML summary: {page}\n")
    print(reports.summary(chain, published, page))


def from_command_line(
    steps: Sequence[Step],
    recipes: Mapping[str, ChainRecipe],
    *,
    about: str | None,
    arguments: Sequence[str] | None = None,
) -> tuple[Chain, bool]:
    """Return the chain of a command line, and whether it is a dry run.

    Exits with status 2 and a message on standard error if the arguments are invalid.

    Args:
        steps: All available steps.
        recipes: Chain recipes by name.
        about: Description of the script.
        arguments: Command-line arguments; by default those of the process.
    """
    parser = settings_parser(
        about,
        _manual(steps, recipes),
        "folder=DIR, source.path=DIR, or a setting of a step: pretrain.epochs=8; repeat for more",
    )
    parser.add_argument("recipe", choices=sorted(recipes), help="a named chain, see below")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print every step with its settings and state, and exit",
    )
    parsed = parser.parse_args(arguments)
    try:
        values = changes_of(parsed.changes, recipes[parsed.recipe]())
        names = [change_of(text)[0] for text in parsed.changes]
        chain = read_chain(steps, parsed.recipe, values)
        reject_unused(names, chain, steps)
        return chain, parsed.dry_run
    except ConfigError as error:
        parser.exit(2, f"{error}\n")


def _manual(steps: Sequence[Step], recipes: Mapping[str, ChainRecipe]) -> str:
    lines = [
        *recipes_manual(recipes),
        "settings:",
        "  folder       where every step publishes, local or s3:// (required)",
        "  name         suffix of folders whose settings differ from those published: model-NAME/",
        "  source.…     harvest.source.…",
    ]
    for step in steps:
        text = (
            f"of {step.name}, which publishes {step.folder}/: "
            f"see biovl {step.name} --help; recipe is one of {', '.join(step.recipes)}, "
            "null leaves the step out"
        )
        lines += textwrap.wrap(
            f"{step.name + '.…':<12} {text}", 98, initial_indent="  ", subsequent_indent=" " * 15
        )
    return "\n".join(lines)
