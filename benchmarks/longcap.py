"""Context and long captions, measured: acronyms, lengths, throughput, and a sheet to look through.

python benchmarks/longcap.py acronyms                       # hand-made cases; peers if installed
python benchmarks/longcap.py lengths FIGURES [COLUMN …]     # tokens before and after, share cut
python benchmarks/longcap.py throughput                     # requests/s beside a bare client's
python benchmarks/longcap.py sheet FIGURES OUT.html         # 50 random figures

COLUMNs are folders that annotate published; without any, those in FIGURES/columns are taken.
BMC-LongCLIP's paper has 127 tokens for captions and 323 for LongCAP (BioClinical ModernBERT).
"""

import argparse
import asyncio
import contextlib
import html
import multiprocessing
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq

from biovl.annotate.annotators import pixels_of
from biovl.annotate.annotators.longcap import data_url
from biovl.annotate.longcap.expansion import expand_acronyms
from biovl.articles.acronyms import Acronym, acronyms_of
from biovl.articles.sentences import sentences
from biovl.models.clip_tokens import clip_token_counts

WINDOWS = (77, 154, 256, 512)
LONG = ("expanded_caption", "context_caption", "long_caption")
_SHEET_FIGURES = 50
_SHEET_PX = 700


def acronym_scores() -> dict[str, dict[str, float]]:
    """Return precision and recall on the hand-made cases, ours and those of peers."""
    from tests.articles.acronym_cases import DEFINED

    ways: dict[str, Callable[[str], Mapping[str, str]]] = {
        "biovl": lambda text: {found.short: found.long for found in acronyms_of([text])}
    }
    try:
        from abbreviations import schwartz_hearst

        ways["abbreviations 0.2.5 (Schwartz-Hearst)"] = lambda text: (
            schwartz_hearst.extract_abbreviation_definition_pairs(doc_text=text)
        )
    except ImportError:
        pass
    return {name: _scored(way, DEFINED) for name, way in ways.items()}


def _scored(
    way: Callable[[str], Mapping[str, str]], cases: list[tuple[str, dict[str, str]]]
) -> dict[str, float]:
    right = found = wanted = 0
    for text, defined in cases:
        told = way(text)
        right += sum(defined.get(short) == long for short, long in told.items())
        found += len(told)
        wanted += len(defined)
    return {"cases": len(cases), "precision": right / max(found, 1), "recall": right / wanted}


def expansion_score() -> dict[str, float]:
    """Return the share of hand-made captions that are spelled out exactly as wanted."""
    from tests.articles.acronym_cases import EXPANDED

    right = sum(
        expand_acronyms(caption, [Acronym(*item) for item in known.items()]) == wanted
        for caption, known, wanted in EXPANDED
    )
    return {"cases": len(EXPANDED), "exact": right / len(EXPANDED)}


def lengths(figures: str, columns: list[str]) -> dict[str, dict[str, float]]:
    """Return tokens of captions and of what was made of them: means, and the share that is cut."""
    rows = [row for row in _rows(figures, columns, ["caption"]) if row["caption"].strip()]
    names = ["caption", *(name for name in LONG if name in rows[0])]
    found = {}
    for name in names:
        counts_N = clip_token_counts([row[name] or row["caption"] for row in rows]) + 2
        cut = {
            f"cut at {window}": float(np.maximum(counts_N - window, 0).sum() / counts_N.sum())
            for window in WINDOWS
        }
        found[name] = {
            "texts": len(counts_N),
            "mean": float(counts_N.mean()),
            "median": float(np.median(counts_N)),
            "most": float(counts_N.max()),
            **cut,
        }
    return found


def sheet(figures: str, columns: list[str], out: Path, seed: int) -> int:
    """Write 50 random figures to look through; return how many there are."""
    wanted = ["figure_id", "caption", "image"]
    rows = [row for row in _rows(figures, columns, wanted) if row["caption"].strip()]
    rows = [row for row in rows if row["image"] is not None] or rows
    picked = random.Random(seed).sample(rows, min(_SHEET_FIGURES, len(rows)))
    out.write_text(_PAGE.format(body="\n".join(map(_shown, picked))), encoding="utf-8")
    return len(picked)


def throughput(figures: int, concurrent: int, latency_s: float) -> dict[str, float]:
    """Return requests a second of an endpoint: as it answers a bare client, us, and the whole job.

    The endpoint answers so many requests at a time, each in half to one and a half of the latency.
    Rates are from its first request to its last.
    """
    from biovl.annotate.annotators.longcap import Config, build
    from biovl.annotate.config import AnnotateConfig
    from biovl.annotate.job import annotate
    from biovl.annotate.longcap.endpoint import EndpointConfig
    from biovl.core.plugins import Plugin
    from tests.annotate.longcap.figures import write_figures
    from tests.annotate.small_models import png, scene

    rows = [
        {
            "image": png(scene(number)),
            "figure_label": None,
            "caption": f"A bright square, number {number}.",
            "caption_superscripts": [],
            "mentions": [],
            "article.abstract": None,
            "article.full_text": None,
            "article.abbreviations": None,
        }
        for number in range(figures)
    ]
    found = {"endpoint can": concurrent / latency_s}
    with tempfile.TemporaryDirectory() as folder, _endpoint(concurrent, latency_s) as endpoint:
        settings = {"model": "m", "cache": f"{folder}/cache"}
        own = Config(**settings, endpoint=EndpointConfig(url=endpoint.url, concurrent=concurrent))
        annotator = build(own)
        prepared = [data for row in rows if isinstance(data := annotator.prepare(row), bytes)]
        asyncio.run(_bare(endpoint.url, annotator, prepared, concurrent))
        found["bare client"] = endpoint.rate()
        model = annotator.load("cpu", "float32")
        batches = [
            np.array(prepared[first : first + 64], object) for first in range(0, figures, 64)
        ]
        with ThreadPoolExecutor(own.batches_at_once) as pool:
            list(pool.map(model, batches))
        found["annotator"] = endpoint.rate()
        listed = [
            {"image": row["image"], "caption": row["caption"], "source_uri": "a"} for row in rows
        ]
        table = write_figures(Path(folder, "figures"), listed, {"a": "nothing"})
        job = {**settings, "cache": f"{folder}/other"}
        job["endpoint"] = {"url": endpoint.url, "concurrent": concurrent}
        annotate(AnnotateConfig(table=str(table), annotator=Plugin("longcap", job), batch=64))
        found["job"] = endpoint.rate()
    found["annotator / bare"] = found["annotator"] / found["bare client"]
    found["job / bare"] = found["job"] / found["bare client"]
    return found


async def _bare(url: str, annotator: Any, prepared: list[bytes], concurrent: int) -> None:
    """Ask as fast as the endpoint answers, without cache, budget or retries."""
    from biovl.annotate.longcap.steps import Sampling, body_of

    room = asyncio.Semaphore(concurrent)
    limits = httpx.Limits(max_connections=concurrent)
    async with httpx.AsyncClient(timeout=600, limits=limits) as client:

        async def post(data: bytes) -> None:
            ask = next(annotator.start(data)[1])
            async with room:
                body = body_of(ask, "bare", Sampling())
                (await client.post(f"{url}/chat/completions", json=body)).json()

        # Two requests a figure, as the steps have where all is feasible.
        await asyncio.gather(*(post(data) for data in prepared * 2))


class _Endpoint:
    def __init__(self, pipe: Connection) -> None:
        self._pipe, self.url = pipe, str(pipe.recv())

    def rate(self) -> float:
        """Return requests a second since this was asked last."""
        self._pipe.send("rate")
        return float(self._pipe.recv())


@contextlib.contextmanager
def _endpoint(concurrent: int, latency_s: float) -> Iterator[_Endpoint]:
    """Start an endpoint in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, concurrent, latency_s), daemon=True)
    process.start()
    try:
        yield _Endpoint(ours)
    finally:
        process.terminate()


def _serve(pipe: Connection, concurrent: int, latency_s: float) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.annotate.longcap.scripted_endpoint import Scripted, good, serving

    room = threading.Semaphore(concurrent)

    def reply(body: dict[str, Any], number: int) -> str:
        with room:
            time.sleep(latency_s * (0.5 + (number * 7_919 % 101) / 100))
        return good(body)

    with serving(Scripted(reply)) as script:
        pipe.send(script.url)
        while pipe.recv() == "rate":
            times = sorted(script.times)
            script.times.clear()
            pipe.send(len(times) / (times[-1] - times[0] + latency_s))


def _rows(figures: str, columns: list[str], wanted: list[str]) -> Iterator[dict[str, Any]]:
    folders = [Path(folder) for folder in columns] or sorted(Path(figures, "columns").glob("*"))
    for part in sorted(Path(figures, "figures").glob("*.parquet")):
        tables = [pq.read_table(part, columns=wanted)]
        tables += [pq.read_table(folder / part.name) for folder in folders]
        for row in zip(*(table.to_pylist() for table in tables), strict=True):
            yield {name: value for cells in row for name, value in cells.items()}


def _shown(row: Mapping[str, Any]) -> str:
    pixels_HWC = pixels_of(row["image"])
    picture = (
        f"<p>{_text(pixels_HWC)}</p>"
        if isinstance(pixels_HWC, str)
        else f'<img src="{data_url(pixels_HWC, _SHEET_PX)}">'
    )
    sources = row.get("context_sources") or []
    told = [
        f"<li><b>{_text(item['source'])}</b> {_text(item['text'])}"
        + (f"<br><i>{_text(item['published'])}</i>" if item["published"] != item["text"] else "")
        for item in sources[1:]
    ]
    long = row.get("long_caption") or ""
    texts = [f"<h4>Caption</h4><p>{_text(row['caption'])}</p>"]
    if long:
        said = f"{row['caption']} {' '.join(item['text'] for item in sources)}"
        texts.append(f"<h4>Long caption ({_text(row['long_caption_status'])})</h4>")
        texts.append(f"<p>{_marked(long, row['caption'], said)}</p>")
    texts.append(f"<h4>From the article</h4><ul>{''.join(told) or '<li>nothing'}</ul>")
    known = ", ".join(f"{item['short']}: {item['long']}" for item in row.get("acronyms") or [])
    texts.append(f"<h4>Acronyms</h4><p>{_text(known) or 'none'}</p>")
    return (
        f"<section><h3>{_text(row['figure_id'])}</h3><div>{picture}</div>"
        f"<div>{''.join(texts)}</div></section>"
    )


def _marked(long: str, caption: str, said: str) -> str:
    """Return a long caption, words marked that stand in no caption, and in nothing that was told.

    With each sentence, the one of the article it shares most words with.
    """
    own, told = _words(caption), _words(said)
    stated = [said[span.start : span.end] for span in sentences(said)]
    marked = []
    for span in sentences(long):
        sentence = long[span.start : span.end]
        nearest = max(stated, key=lambda other: len(_words(other) & _words(sentence)), default="")
        words = [
            f'<mark class="{"told" if word.strip(".,;:()").lower() in told else "new"}">'
            f"{_text(word)}</mark>"
            if word.strip(".,;:()").lower() not in own
            else _text(word)
            for word in sentence.split()
        ]
        marked.append(f'<span title="{_text(nearest)}">{" ".join(words)}</span>')
    return " ".join(marked)


def _words(text: str) -> set[str]:
    return {word.strip(".,;:()").lower() for word in text.split()}


def _text(value: str) -> str:
    return html.escape(value or "")


_PAGE = """<!doctype html><meta charset="utf-8"><title>Long captions</title><style>
body {{ font: 15px/1.4 sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }}
section {{ display: grid; grid-template-columns: 24rem 1fr; gap: 0 2rem; margin-bottom: 3rem }}
h3 {{ grid-column: 1 / 3 }} img {{ max-width: 100% }} i {{ color: #667 }}
mark.told {{ background: #d8f0d8 }} mark.new {{ background: #f8d0d0 }}
</style><p>Green: not in the caption, and in a sentence of the article (the nearest one shows when
the pointer rests on it). Red: in neither. Grey: as published.</p>
{body}
"""


def main() -> None:
    """Measure what is asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["acronyms", "lengths", "throughput", "sheet"])
    parser.add_argument("figures", nargs="?")
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=512, help="figures to ask for")
    parser.add_argument("--concurrent", type=int, default=32)
    parser.add_argument("--latency", type=float, default=0.5, help="seconds")
    given = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1]))
    if given.what == "acronyms":
        for name, scores in acronym_scores().items():
            print(name, _line(scores))
        print("spelled out", _line(expansion_score()))
    elif given.what == "lengths":
        for name, counts in lengths(given.figures, given.rest).items():
            print(name, _line(counts))
    elif given.what == "throughput":
        print(_line(throughput(given.count, given.concurrent, given.latency)))
    elif given.what == "sheet":
        out, *columns = given.rest
        print(sheet(given.figures, columns, Path(out), given.seed), "figures in", out)


def _line(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.3g}" for name, value in values.items())


if __name__ == "__main__":
    main()
