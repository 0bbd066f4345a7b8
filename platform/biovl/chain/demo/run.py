"""The demo: articles are generated or downloaded, all jobs run, and the results are searched."""

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from biovl.chain import reports
from biovl.chain.demo import concepts as demo_concepts
from biovl.chain.demo import service as demo_service
from biovl.chain.job import run_chain
from biovl.chain.links import Link, read_chain
from biovl.chain.recipes import demo, demo_pmc
from biovl.chain.steps import STEPS
from biovl.core.artifacts import find_manifest
from biovl.core.errors import BiovlError, ConfigError
from biovl.core.folders import Folder
from biovl.pretrain.publishing import publish_pretrained
from biovl.runtime.terminal import filter_false_alarms
from biovl.sample import make_damaged_packages, make_packages

BIOMEDCLIP = "hf-hub:microsoft/BiomedCLIP-PubMedBERT_256-vit_base_patch16_224"
"""The model for articles of PMC, as its authors published it (MIT licence)."""

_ARTICLES = 48

_TEXTS = {
    "synthetic": "Phase map of a cell treated with carvedilol",
    "pmc": "chest radiograph with pleural effusion",
}
"""What the searches ask for, by data."""


def run(folder: Path, articles: int | None, serve: bool, data: str = "synthetic") -> None:
    """Make or download articles, run all jobs, search, and print the path of the HTML summary.

    Args:
        folder: Working folder; steps that are published there are not repeated.
        articles: Number of synthetic articles to generate; None: those that the folder has, or 48.
        serve: Keep the service running until Ctrl-C.
        data: ``synthetic``: generated articles, and a model trained on them; ``pmc``: articles of
            PMC and BiomedCLIP, both downloaded.
    """
    is_synthetic = data == "synthetic"
    started = time.monotonic()
    try:
        # Reports missing packages before anything is run.
        demo_service.serve_package()
        values = _synthetic(folder, articles) if is_synthetic else _of_pmc(folder)
    except BiovlError as error:
        sys.exit(_refused(error))
    chain = read_chain(STEPS, "demo", values)
    try:
        with filter_false_alarms():
            done = run_chain(chain, after=lambda links, took: reports.note(chain, links, took))
    except BiovlError as error:
        sys.exit(_refused(error))
    print(f"\nDone in {time.monotonic() - started:.0f} s. Published folders:\n")
    print(reports.outcome(chain, done))
    _example(folder / "corpus")
    concepts, took, labels = list[Link](), dict[str, float](), ""
    if is_synthetic:
        _scores(done)
        with filter_false_alarms():
            concepts, took, labels = _concepts(folder)
    print("Serving model and index on this machine …", flush=True)
    with demo_service.serving(folder) as address:
        text = _TEXTS[data]
        searches = demo_service.searches(address, text, _unseen(folder / "corpus"))
        shot = demo_service.screenshot(address, text, folder / "page.png")
        shown = [*done, *concepts]
        page = reports.note(chain, shown, took, searches=searches, screenshot=shot, labels=labels)
        if serve:
            print(f"\nAll of it on a page: {page}")
            demo_service.wait(address)
    print(
        f"The service was at {address}/; to have it again: biovl demo {folder} --serve, or "
        f"serve run {folder}/serve.yaml\n\n"
        f"All of it on a page, to open in a browser: {page}\n"
    )
    print(reports.summary(chain, done, page))


def _synthetic(folder: Path, articles: int | None) -> dict[str, Any]:
    """Generate packages, and return the settings of the chain."""
    _generate(folder / "packages", articles)
    return {
        **demo(),
        "folder": str(folder),
        "source.path": str(folder / "packages"),
        # Panels are shown on the page only; the model is trained on whole figures.
        "split.recipe": "default",
        "assemble.figures": str(folder / "figures"),
    }


def _of_pmc(folder: Path) -> dict[str, Any]:
    """Download the model, and return the settings of the chain, which downloads the articles."""
    model = str(folder / "model")
    if find_manifest(model) is None:
        print(f"Downloading {BIOMEDCLIP.removeprefix('hf-hub:')} (800 MB) …", flush=True)
    try:
        publish_pretrained(BIOMEDCLIP, model)
    except BiovlError as error:
        raise type(error)(
            f"{error}\nWithout internet, run the demo on synthetic articles: omit --data pmc "
            "(DATA=pmc of make)"
        ) from error
    return {
        **demo_pmc(),
        "folder": str(folder),
        "assemble.figures": str(folder / "figures"),
        "index.model": model,
        "benchmark.model": model,
    }


def _refused(error: BiovlError) -> int:
    print(error, file=sys.stderr)
    return 2


def _generate(packages: Path, articles: int | None) -> None:
    """Generate articles, unless they exist.

    Raises:
        ConfigError: If there are, but not as many.
    """
    if packages.exists():
        # Damaged packages have no number of their own.
        existing = len(list(packages.glob("PMC*")))
        if articles not in (None, existing):
            raise ConfigError(
                f"--articles {articles}: {packages} has {existing} articles already. Choose "
                f"another folder, or remove {packages.parent}, or leave --articles out"
            )
        return
    articles = articles or _ARTICLES
    print(f"Generating {articles} synthetic articles, and damaging a few …", flush=True)
    # Renamed when complete, so that an interrupted run leaves no partial sample.
    unfinished = packages.with_name(".packages-unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    Folder(str(unfinished)).create()
    make_packages(unfinished, articles=articles)
    make_damaged_packages(unfinished)
    unfinished.rename(packages)


def _example(corpus: Path) -> None:
    columns = ["pair_id", "figure_label", "caption", "license", "shard", "offset", "size"]
    pair = pq.read_table(corpus / "index.parquet", columns=columns).slice(0, 1).to_pylist()[0]
    print("One pair, and how to read just it:")
    print(f"  {pair['pair_id']}, {pair['figure_label']}, {pair['license']}")
    print(f"  {pair['caption'].splitlines()[0][:90]} …")
    print(
        "  >>> from biovl.core.shards import read_pair\n"
        f"  >>> read_pair('{corpus}/{pair['shard']}', {pair['offset']}, {pair['size']}).keys()\n"
    )


def _unseen(corpus: Path) -> dict[str, str]:
    """Return a figure and its caption, of an article that the model was not trained on."""
    columns = ["pair_id", "caption", "split"]
    table = pq.read_table(corpus / "index.parquet", columns=columns)
    pair = table.filter(pc.equal(table["split"], "test")).slice(0, 1).to_pylist()[0]
    return {"figure_id": pair["pair_id"], "caption": pair["caption"]}


def _concepts(folder: Path) -> tuple[list[Link], dict[str, float], str]:
    """Cluster and label images of known kinds; return the steps, their durations, and how well."""
    print("Clustering images of known kinds, and turning simulated votes into labels …", flush=True)
    done, seconds = demo_concepts.run(folder / "kinds", folder / "model")
    labels = folder / "kinds" / "labels"
    said = demo_concepts.summary(labels)
    print(f"{said} Example images of each label: {labels}/sheets.png\n")
    return done, seconds, said


def _scores(done: list[Link]) -> None:
    notes = [
        link.manifest.notes for link in done if link.manifest and link.manifest.kind == "model"
    ]
    scores = notes[0]["validation"]
    right, chance = scores["text_to_image_recall_at_1"], scores["chance_recall_at_1"]
    print(
        f"By the caption of an article it has not seen, the model finds the right image of "
        f"{scores['pairs']} at once for {right:.0%}; by chance it would be {chance:.0%}.\n"
    )
