"""Measure harvest against bare lxml, pubmed_parser and a plain loop, as ratios in one run.

    make bench
    python benchmarks/harvest.py [--xml FOLDER_OR_TAR] [--packages FOLDER] [--only reading,ray]

Without folders it makes its own packages, which are clean: defects then say little. Times are CPU
seconds of one process, the least of several rounds in turn; a shared machine is noisy, ratios of
the same minute less so.
"""

import argparse
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lxml import etree

from biovl.articles.jats import read_article

ROUNDS = 5
_FOLDED = re.compile(r"\s+")


def main() -> None:
    """Run the parts asked for and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--xml", type=Path, help="articles as XML: a folder or a tar")
    parser.add_argument("--packages", type=Path, help="PMC packages")
    parser.add_argument("--only", default="reading,defects,ray,memory")
    given = parser.parse_args()
    wanted = set(given.only.split(","))
    with tempfile.TemporaryDirectory() as scratch:
        packages = given.packages or _own_packages(Path(scratch) / "packages")
        articles = list(_articles(given.xml or packages))
        print(f"{len(articles)} articles, {sum(map(len, articles)) / 1e6:.1f} MB of XML\n")
        print(f"| {'what':<66} | {'measured':>12} | {'goal':>8} |")
        print(f"|{'-' * 68}|{'-' * 14}|{'-' * 10}|")
        if "reading" in wanted:
            reading(articles)
        if "defects" in wanted:
            defects(articles)
        if "ray" in wanted:
            ray_against_a_loop(packages, Path(scratch))
        if "memory" in wanted:
            memory(packages, Path(scratch))


def row(what: str, measured: str, goal: str = "") -> None:
    """Print one line of the table."""
    print(f"| {what:<66} | {measured:>12} | {goal:>8} |", flush=True)


def reading(articles: list[bytes]) -> None:
    """CPU time of reading the same bytes in one process."""
    paths = _files(articles)
    ways: dict[str, Callable[[], None]] = {
        "bare": lambda: _each(articles, etree.fromstring),
        "ours": lambda: _each(articles, read_article),
    }
    peer = _pubmed_parser()
    if peer is not None:
        ways["captions"] = lambda: _peer_reads(peer, paths, ["parse_pubmed_caption"])
        ways["peer"] = lambda: _peer_reads(
            peer,
            paths,
            ["parse_pubmed_caption", "parse_pubmed_xml", "parse_pubmed_paragraph"],
        )
    seconds = {name: float("inf") for name in ways}
    for _ in range(ROUNDS):
        for name, work in ways.items():
            gc.collect()
            started = time.process_time()
            work()
            seconds[name] = min(seconds[name], time.process_time() - started)
    bare, ours = seconds["bare"], seconds["ours"]
    row("bare lxml: etree.fromstring", f"{bare:.2f} s")
    row("ours: everything, in one pass", f"{ours:.2f} s")
    row("ours / bare lxml", f"{ours / bare:.2f}", "<= 2.5")
    if peer is not None:
        row("pubmed_parser 0.5.1: captions", f"{seconds['captions']:.2f} s")
        row("pubmed_parser 0.5.1: captions + metadata + paragraphs", f"{seconds['peer']:.2f} s")
        row("pubmed_parser (all three) / ours", f"{seconds['peer'] / ours:.2f}", ">= 2.0")
    for path in paths:
        path.unlink()


def defects(articles: list[bytes]) -> None:
    """Captions whose text differs from the figure's own caption, per 10,000 figures.

    The truth is lxml's text of the figure's own caption without white space. Where a caption holds
    a formula the two may rightly differ (we give one reading, lxml prints TeX and MathML), so these
    figures are left out for both; so are members of figure groups and legends beside the caption.
    """
    truths: list[dict[str, str]] = [_true_captions(xml) for xml in articles]
    figures = sum(map(len, truths))
    ours = sum(
        truth.get(figure.xml_id or "", _bare(figure.caption)) != _bare(figure.caption)
        for xml, truth in zip(articles, truths, strict=True)
        for figure in _content_figures(xml)
    )
    row("figures compared", f"{figures:,}")
    row("ours: captions that differ, per 10,000 figures", f"{ours / figures * 1e4:.0f}", "0")
    peer = _pubmed_parser()
    if peer is None:
        return
    paths = _files(articles)
    wrong = lost = 0
    for path, truth in zip(paths, truths, strict=True):
        try:
            found = peer.parse_pubmed_caption(str(path)) or []
        except Exception:  # whatever the peer raises is what is counted
            lost += len(truth)
            continue
        captions = {item["fig_id"]: _bare(item["fig_caption"] or "") for item in found}
        lost += len(truth.keys() - captions.keys())
        wrong += sum(captions[key] != truth[key] for key in truth.keys() & captions.keys())
    row(
        "pubmed_parser 0.5.1: captions that differ, per 10,000 figures",
        f"{wrong / figures * 1e4:.0f}",
    )
    row("pubmed_parser 0.5.1: figures lost, per 10,000 figures", f"{lost / figures * 1e4:.0f}")
    for path in paths:
        path.unlink()


def ray_against_a_loop(packages: Path, scratch: Path) -> None:
    """Wall time of the work under Ray Data against the same functions, one plain loop per core."""
    many = _copies(packages, scratch / "many", 16)
    cores = len(os.sched_getaffinity(0))
    best = 0.0
    for _ in range(2):
        loops = _seconds_of_loops(many, scratch, cores)
        with_ray = _seconds_with_ray(many, scratch)
        best = max(best, loops / with_ray)
    row(f"Ray Data against {cores} plain loops (start of Ray left out)", f"{best:.2f}", ">= 0.8")


def memory(packages: Path, scratch: Path) -> None:
    """Peak memory of the workers at 1, 4 and 16 times the corpus."""
    peaks = []
    for times in (1, 4, 16):
        many = _copies(packages, scratch / f"x{times}", times)
        peaks.append(_peak_mb(many, scratch / f"out{times}"))
        shutil.rmtree(many)
        row(f"peak memory of a worker at {times}x the corpus", f"{peaks[-1]:.0f} MB")
    row("largest / smallest peak", f"{max(peaks) / min(peaks):.2f}", "<= 1.15")


# --- how it is done ---------------------------------------------------------------------------

_LOOP = """
import json, sys, time
from biovl.core import config as configs
from biovl.harvest.config import HarvestConfig
from biovl.harvest.job import read_unit, plan_units
from biovl.core.artifacts import Draft
config = configs.build(HarvestConfig, json.loads(sys.argv[1]))
units = plan_units(config)
started = time.monotonic()
for number in range(int(sys.argv[2]), len(units), int(sys.argv[3])):
    read_unit(config, number, units[number])
print(time.monotonic() - started)
"""

_RAY = """
import json, sys, time
import ray
from biovl.core import config as configs
from biovl.runtime.connection import connect_ray
from biovl.harvest.config import HarvestConfig
from biovl.harvest.job import harvest
config = configs.build(HarvestConfig, json.loads(sys.argv[1]))
with connect_ray():
    ray.get([ray.remote(lambda: __import__("biovl.harvest.rows")).remote() for _ in range(8)])
    started = time.monotonic()
    harvest(config)
    print(time.monotonic() - started)
"""

_PEAK = """
import json, resource, sys
from biovl.core import config as configs
from biovl.harvest.config import HarvestConfig
from biovl.harvest.job import read_unit, plan_units
config = configs.build(HarvestConfig, json.loads(sys.argv[1]))
for number, unit in enumerate(plan_units(config)):
    read_unit(config, number, unit)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def _settings(packages: Path, out: Path) -> str:
    shutil.rmtree(out, ignore_errors=True)
    source = {"name": "packages", "path": str(packages)}
    return json.dumps({"source": source, "out": str(out), "packages_per_unit": 16})


def _seconds_of_loops(packages: Path, scratch: Path, cores: int) -> float:
    settings = _settings(packages, scratch / "loop")
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _LOOP, settings, str(core), str(cores)], stdout=subprocess.PIPE
        )
        for core in range(cores)
    ]
    return max(float(process.communicate()[0]) for process in running)


def _seconds_with_ray(packages: Path, scratch: Path) -> float:
    settings = _settings(packages, scratch / "ray")
    done = subprocess.run(
        [sys.executable, "-c", _RAY, settings],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return float(done.stdout.split()[-1])


def _peak_mb(packages: Path, out: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, _settings(packages, out)], stdout=subprocess.PIPE, check=True
    )
    shutil.rmtree(out)
    return float(done.stdout.split()[-1])


def _copies(packages: Path, into: Path, times: int) -> Path:
    into.mkdir(parents=True)
    for number in range(times):
        for package in sorted(packages.iterdir()):
            name = f"c{number:03d}-{package.name}"
            if package.is_dir():
                shutil.copytree(package, into / name, copy_function=os.link)
            else:
                os.link(package, into / name)
    return into


def _own_packages(folder: Path) -> Path:
    from biovl.sample import make_packages

    make_packages(folder)
    return folder


def _articles(location: Path) -> Iterator[bytes]:
    if location.is_file():
        with tarfile.open(location) as archive:
            for member in archive:
                if member.isfile() and member.name.endswith((".xml", ".nxml")):
                    stream = archive.extractfile(member)
                    assert stream is not None
                    yield stream.read()
        return
    for path in sorted(location.rglob("*")):
        if path.suffix in (".xml", ".nxml"):
            yield path.read_bytes()
        elif path.name.endswith(".tar.gz"):
            yield from _articles(path)


def _files(articles: list[bytes]) -> list[Path]:
    folder = Path(tempfile.mkdtemp())
    paths = []
    for number, xml in enumerate(articles):
        path = folder / f"{number}.nxml"
        path.write_bytes(xml)
        paths.append(path)
    return paths


def _each(articles: list[bytes], read: Callable[[bytes], object]) -> None:
    for xml in articles:
        try:
            read(xml)
        except etree.XMLSyntaxError:
            continue


def _pubmed_parser() -> object | None:
    try:
        import pubmed_parser
    except ModuleNotFoundError:
        row("pubmed_parser is not installed: make bench installs it", "")
        return None
    return pubmed_parser


def _peer_reads(peer: object, paths: list[Path], functions: list[str]) -> None:
    for path in paths:
        for name in functions:
            try:
                getattr(peer, name)(str(path))
            except Exception:  # the peer raises on some articles; its time counts all the same
                continue


def _bare(text: str) -> str:
    return _FOLDED.sub("", text)


def _true_captions(xml: bytes) -> dict[str, str]:
    try:
        root = etree.fromstring(xml, etree.XMLParser(remove_comments=True, remove_pis=True))
    except etree.XMLSyntaxError:
        return {}
    found: dict[str, str] = {}
    for figure in root.iter("{*}fig"):
        captions = figure.findall("{*}caption")
        grouped = next(figure.iterancestors("{*}fig-group"), None) is not None
        beside = figure.find("{*}p") is not None
        hard = any(
            next(caption.iter("{*}math", "{*}tex-math", "{*}inline-graphic"), None) is not None
            for caption in captions
        )
        if figure.get("id") and not (grouped or beside or hard) and len(captions) < 2:
            text = "".join(captions[0].itertext()) if captions else ""
            # The first of two figures that share an id is the article's own.
            found.setdefault(figure.get("id"), _bare(text))
    return found


def _content_figures(xml: bytes) -> list:
    content = read_article(xml).content
    if content is None:
        return []
    first = {}
    for figure in content.figures:
        first.setdefault(figure.xml_id, figure)
    return list(first.values())


if __name__ == "__main__":
    main()
