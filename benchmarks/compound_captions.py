"""How well captions are split, on captions with hand-made parts.

    python benchmarks/compound_captions.py ../shared/data

Beside it the trivial answer: the right labels, each with the whole caption.
"""

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from biovl.articles.subcaptions.splitting import SplitCaption, split_caption

_WORD = re.compile(r"\w+")


def scores(shared: Path) -> dict[str, dict[str, float]]:
    """Return the scores by data set: label sets, token F1, the trivial answer's F1, time.

    Args:
        shared: The folder with ``cases/captions.jsonl`` and ``cases/zou_subcaptions.jsonl``.
    """
    return {
        "captions": _scored(list(_captions(shared / "cases" / "captions.jsonl"))),
        "zou": _scored(list(_zou(shared / "cases" / "zou_subcaptions.jsonl"))),
    }


Case = tuple[str, str, dict[str, str]]
"""Id, caption, and the text of every label."""


def _captions(path: Path) -> Iterator[Case]:
    for line in path.read_text().splitlines():
        row = json.loads(line)
        texts: dict[str, str] = {}
        for part in row["parts"]:
            for label in part["labels"]:
                texts[label] = f"{texts.get(label, '')} {part['text']}"
        whole = {
            label: f"{row['preamble']} {text} {row['trailing']}" for label, text in texts.items()
        }
        yield f"{row['pmcid']}{row['fig_id']}", row["caption"], whole


def _zou(path: Path) -> Iterator[Case]:
    for line in path.read_text().splitlines():
        row = json.loads(line)
        texts = {panel["label"]: panel["caption"] for panel in row["panels"] if panel["label"]}
        yield f"{row['source']}:{row['image']}", row["caption"], texts


def token_f1(found: str, true: str, label: str) -> float:
    """Return the F1 of two bags of words; a panel's own label is no word of its text."""
    a, b = (Counter(_WORD.findall(text.lower())) for text in (found, true))
    del a[label], b[label]
    both = (a & b).total()
    return 2 * both / (a.total() + b.total()) if both else float(a == b)


def case_score(
    split: SplitCaption, caption: str, texts: dict[str, str]
) -> tuple[bool, float, float]:
    """Return whether the labels are right, the mean F1 and that of the trivial answer.

    Letter case does not count: the data sets write ``c`` for a printed ``C``.
    """
    found = {label.lower(): split.text_of(label) for label in split.labels()}
    true = {label.lower(): text for label, text in texts.items()}
    names = found.keys() | true.keys()
    if not names:
        return True, 1.0, 1.0
    # A label that only one side has scores nothing.
    f1 = sum(token_f1(found[n], true[n], n) for n in found.keys() & true.keys()) / len(names)
    trivial = (
        sum(token_f1(caption, text, n) for n, text in true.items()) / len(true) if true else 1.0
    )
    return found.keys() == true.keys(), f1, trivial


def _scored(cases: list[Case]) -> dict[str, float]:
    start = time.process_time()
    splits = [split_caption(caption) for _, caption, _ in cases]
    spent = time.process_time() - start
    results = [
        case_score(split, caption, texts)
        for split, (_, caption, texts) in zip(splits, cases, strict=True)
    ]
    exact, f1, trivial = (sum(values) / len(cases) for values in zip(*results, strict=True))
    return {
        "captions": len(cases),
        "label_set_exact": exact,
        "token_f1": f1,
        "trivial_f1": trivial,
        "ms": 1e3 * spent / len(cases),
    }


if __name__ == "__main__":
    for name, row in scores(Path(sys.argv[1])).items():
        print(f"{name:10}", "  ".join(f"{key} {value:.3f}" for key, value in row.items()))
