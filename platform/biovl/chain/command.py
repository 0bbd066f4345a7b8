"""What a command line asks of a chain."""

import argparse
import inspect
import textwrap
from collections.abc import Mapping, Sequence

from biovl.chain import Chain, Step, read_chain, refuse_unused
from biovl.chain.recipes import ChainRecipe
from biovl.core import config as configs
from biovl.core.errors import ConfigError


def from_command_line(
    steps: Sequence[Step],
    recipes: Mapping[str, ChainRecipe],
    *,
    about: str | None,
    arguments: Sequence[str] | None = None,
) -> tuple[Chain, bool]:
    """Return the chain that is asked for, and whether it shall only be shown.

    Ends the process with status 2 and the reason on standard error when it is not valid.

    Args:
        steps: That there are.
        recipes: Of chains, by name.
        about: What the script does.
        arguments: None takes those of the process.
    """
    parser = argparse.ArgumentParser(
        description=textwrap.dedent(about or "").strip(),
        epilog=_manual(steps, recipes),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recipe", choices=sorted(recipes), help="a named chain, see below")
    parser.add_argument(
        "--set",
        dest="changes",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="folder=DIR, source.path=DIR, or a setting of a step: pretrain.epochs=8; repeat for "
        "more",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show every step and whether it is done, and stop"
    )
    given = parser.parse_args(arguments)
    try:
        values, names = dict(recipes[given.recipe]()), list[str]()
        for text in given.changes:
            name, value = configs.change_of(text)
            names.append(name)
            if name[-1] in "+-" and name in values:
                values[name] = configs.together(values[name], value)
                continue
            # Settings are replaced in the order in which they are given.
            for before in (name, f"{name}+", f"{name}-"):
                values.pop(before, None)
            values[name] = value
        chain = read_chain(steps, given.recipe, values)
        refuse_unused(names, chain, steps)
        return chain, given.dry_run
    except ConfigError as error:
        parser.exit(2, f"{error}\n")


def _manual(steps: Sequence[Step], recipes: Mapping[str, ChainRecipe]) -> str:
    lines = ["recipes:"]
    for name, recipe in sorted(recipes.items()):
        lines.append(f"  {name:<12} {(inspect.getdoc(recipe) or '').splitlines()[0]}")
    lines += [
        *("", "settings:"),
        "  folder       where every step publishes, local or s3:// (required)",
        "  name         publish what differs from what is there beside it: model-NAME/",
        "  source.…     harvest.source.…",
    ]
    for step in steps:
        text = (
            f"of {step.name}, which publishes {step.folder}/: "
            f"see pipelines/{step.name}.py --help; recipe is one of {', '.join(step.recipes)}, "
            "null leaves the step out"
        )
        lines += textwrap.wrap(
            f"{step.name + '.…':<12} {text}", 98, initial_indent="  ", subsequent_indent=" " * 15
        )
    return "\n".join(lines)
