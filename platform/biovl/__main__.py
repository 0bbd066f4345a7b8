"""The program ``biovl``: its commands. Nothing heavy is imported before a command is known."""

import importlib
import sys
from collections.abc import Sequence

from biovl import __version__

COMMANDS = {
    "harvest": ("biovl.harvest.command", "PMC or packages you have: figures, captions, articles"),
    "enrich": ("biovl.enrich.command", "add PubMed metadata to articles"),
    "split": ("biovl.split.command", "split compound figures into panels"),
    "annotate": ("biovl.annotate.command", "add columns: embeddings, image types, long captions"),
    "cluster": ("biovl.concepts.cluster_command", "cluster similar images for labelling"),
    "review": ("serve.review_command", "serve the web page on which clusters are labelled"),
    "resolve": ("biovl.concepts.resolve_command", "votes on clusters: labels of every image"),
    "assemble": ("biovl.assemble.command", "filter pairs into a corpus of WebDataset shards"),
    "tables": ("biovl.assemble.tables_command", "print a corpus's numbers as BIOMEDICA's tables"),
    "pretrain": ("biovl.pretrain.command", "train a CLIP model on a corpus"),
    "finetune": (
        "biovl.finetune.command",
        "adapt a given model to a corpus, evaluated before and after",
    ),
    "merge": ("biovl.finetune.merge_command", "interpolate two models (WiSE-FT)"),
    "prepare": ("biovl.benchmark.prepare.command", "benchmark data as distributed: one folder"),
    "benchmark": ("biovl.benchmark.command", "evaluate models, with confidence intervals"),
    "index": ("biovl.index.command", "embed a corpus into a search index"),
    "serve": ("serve.command", "serve a model and an index over HTTP"),
    "sweep": ("biovl.sweep.command", "train one recipe with many settings"),
    "publish": ("biovl.publish.command", "upload a folder to the Hugging Face Hub"),
    "plan": ("biovl.plan.command", "estimate hours, dollars and storage of a run"),
    "all": ("biovl.chain.command", "run all jobs from packages to an index"),
    "reproduce": (
        "biovl.chain.reproduce.command",
        "make the tables of the papers, next to the papers' numbers",
    ),
    "demo": (
        "biovl.chain.demo.command",
        "run all jobs on a synthetic sample, and search",
    ),
    "sample": ("biovl.sample.command", "generate synthetic PMC packages"),
    "figure_retrieval": (
        "biovl.benchmark.figure_retrieval.command",
        "retrieval task of new articles, for MTEB and BEIR",
    ),
    "train_detector": ("biovl.split.detector.command", "train a detector of panels for split"),
}
"""Module and description of every command. The module has ``main()``, which reads ``sys.argv``."""


def main() -> None:
    """Run the command line of ``biovl``."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help", "help"):
        print(manual())
    elif name in ("-V", "--version"):
        print(f"biovl {__version__}")
    elif name in COMMANDS:
        run(name, arguments)
    else:
        from biovl.core.config import nearest

        hint = nearest(name, COMMANDS)
        print(
            f"there is no command {name!r}{hint} (biovl --help lists all commands)", file=sys.stderr
        )
        sys.exit(2)


def run(name: str, arguments: Sequence[str] | None = None) -> None:
    """Run a command. Ctrl-C ends the process with the status that shells expect.

    Args:
        name: Name of the command.
        arguments: Its arguments; None uses those of the process.
    """
    # Usage lines show the first of these.
    sys.argv = [f"biovl {name}", *(sys.argv[1:] if arguments is None else arguments)]
    module, _ = COMMANDS[name]
    try:
        importlib.import_module(module).main()
    except KeyboardInterrupt:
        # While it was imported, or in a command that has nothing to resume.
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)


def manual() -> str:
    """Return usage, and a line per command."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {about}" for name, (_, about) in COMMANDS.items()]
    usage = "usage: biovl COMMAND …"
    return "\n".join([usage, "", *lines, "", "biovl COMMAND --help lists recipes and settings."])


if __name__ == "__main__":
    main()
