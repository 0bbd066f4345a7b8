"""The dataset card of the task: description, licences, counts, and exclusions by reason."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from biovl.assemble.hub import hub_license
from biovl.benchmark.datasets.queries import CORPUS, qrels_path, queries_path
from biovl.benchmark.figure_retrieval.candidates import Candidate
from biovl.benchmark.figure_retrieval.config import FigureRetrievalConfig
from biovl.benchmark.figure_retrieval.files import CREDITS, SUBSETS
from biovl.core.markdown import table


def description(config: FigureRetrievalConfig, figures: int) -> str:
    """Return the task in a sentence."""
    return (
        f"Find the figure of a caption, or of a sentence that cites it, among {figures:,} figures "
        f"of as many biomedical articles published on {config.after} or later."
    )


def card(
    config: FigureRetrievalConfig,
    drawn: Sequence[Candidate],
    counts: Mapping[str, Any],
    *,
    code: str,
    unknown_retraction: int,
) -> str:
    """Return the card as Markdown, with metadata that datasets and mteb read."""
    licences = Counter(one.credits["license"] for one in drawn)
    known = f"{len(config.training)} training data sets" if config.training else "no training data"
    count = len(drawn)
    made = [
        f"* **After {config.after}.** A model that was trained on earlier articles has not seen "
        "these. A date counts if no reading of it is earlier; preprints, articles with an earlier "
        "version or an earlier article of the same title are left out.",
        f"* **Leaks.** Compared with {known} by article, DOI, PMID, title, file and perceptual "
        "hash; and with all other articles of the harvest by image and caption. No two figures of "
        "the task have the same image or text.",
        "* **One figure per article**, drawn at random: figures of one article answer each other's "
        "queries, and intervals assume independent queries.",
        "* **Queries have no figure numbers.** They say where an article prints a figure, and "
        "nothing of its content. Sentences that cite another figure, too, are not used.",
        "* **Rights.** Article and figure permit redistribution and changes; figures that credit "
        "others and retracted articles are left out. "
        f"Of {unknown_retraction:,} articles nobody states whether they are retracted.",
    ]
    about = [
        f"---\n{_front_matter(licences)}---",
        "# Retrieval of biomedical figures",
        description(config, count),
        table(
            ["subset", "queries", "query", "answer"],
            [
                ["`caption`", count, "caption without the figure's label", "its figure"],
                ["`mention`", count, "sentence that cites it, without the citation", "its figure"],
            ],
        ),
        "Each query has one relevant figure. A random model has "
        f"recall@1 {1 / count:.2%}, recall@10 {min(1.0, 10 / count):.2%}. Main score in MTEB: "
        "nDCG@10. Scores of other numbers of figures cannot be compared.",
        "## How it was made",
        "\n".join(made),
        "## Licences",
        "Each figure and its texts have the licence of their article: name the authors, see "
        f"`{CREDITS}` (`citation`, `license`, `license_url`).",
        table(["licence", "figures"], [[name, number] for name, number in licences.most_common()]),
        "## Left out",
        table(
            ["reason", "articles", "figures"],
            [
                *([reason, number, None] for reason, number in counts["articles_left_out"].items()),
                *([reason, None, number] for reason, number in counts["figures_left_out"].items()),
            ],
        ),
        f"Made by {code}.",
    ]
    return "\n\n".join(about) + "\n"


def _front_matter(licences: Mapping[str, int]) -> str:
    paths = {"credits": CREDITS}
    for subset in SUBSETS:
        # mteb reads the corpus of every subset under its own name.
        paths |= {
            f"{subset}-corpus": CORPUS,
            f"{subset}-queries": queries_path(subset),
            f"{subset}-qrels": qrels_path(subset),
        }
    values = {
        "pretty_name": "Retrieval of biomedical figures",
        "license": sorted({hub_license(name) for name in licences}),
        "language": ["en"],
        "task_categories": ["text-retrieval", "image-feature-extraction"],
        "tags": ["biology", "medical", "image-text", "mteb"],
        "configs": [
            {"config_name": name, "data_files": [{"split": "test", "path": path}]}
            for name, path in paths.items()
        ],
    }
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True))
