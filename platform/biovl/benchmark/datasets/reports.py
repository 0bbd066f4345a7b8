"""Images with reports in the layout of MIMIC-CXR: ``…/s50414267.txt`` and ``…/s50414267/*.jpg``.

``report.txt`` next to ``report.jpg`` is read as well. BMC-LongCLIP's benchmark is 1,000 unique
pairs of MIMIC-CXR (arXiv:2510.03978, appendix B): an image of each report, with its whole text. The
paper does not say which. Here reports are sampled by a hash of their file name, so the sample does
not depend on their folders or order; a report with the text of an earlier one is skipped.
"""

import hashlib
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from biovl.benchmark import selection
from biovl.benchmark.datasets import Pairs
from biovl.benchmark.datasets.folder import ENDINGS
from biovl.benchmark.stored_images import ImageFiles
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import Tree, base_name
from biovl.core.folders import Folder

NO_IMAGES, NOT_DRAWN, REPEATED = "report without an image", "not drawn", "text of another report"
EMPTY = "report without text"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the dataset: images with reports."""

    path: str
    """The folder that contains reports and images, such as MIMIC-CXR's ``files``; local or
    ``s3://``."""
    pairs: int = 1_000
    """Number of reports to draw; 0: all."""
    images: int = 1
    """Images per report, the first by name; 0: all, with the same text."""
    seed: int = 0
    """Seed of the draw."""


def build(config: Config) -> Pairs:
    """Return a random draw of reports, each with its images.

    Raises:
        ArtifactError: If there are no reports with images.
    """
    tree, folder = Tree(config.path), Folder(config.path)
    try:
        files = list(tree.below(tree.path).files)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ArtifactError(f"{config.path} is not a folder of reports: {error}") from error
    images: dict[str, list[str]] = {}
    for name in files:
        if name.lower().endswith(ENDINGS):
            for of in (name.rpartition("/")[0], name.rpartition(".")[0]):
                images.setdefault(of, []).append(name)
    reports = [name for name in files if name.lower().endswith(".txt")]
    with_images = [name for name in reports if images.get(name[:-4])]
    left_out = Counter({NO_IMAGES: len(reports) - len(with_images)})
    chosen, skipped = draw(with_images, folder.read, pairs=config.pairs, seed=config.seed)
    left_out.update(skipped)
    rows = [
        (image, chosen[name], name)
        for name in sorted(chosen)
        for image in images[name[:-4]][: config.images or None]
    ]
    names = tuple(image for image, _, _ in rows)
    return selection.pairs(
        name=base_name(config.path),
        images=ImageFiles.of(config.path, names),
        texts=[text for _, text, _ in rows],
        ids=names,
        about=pa.table(
            {
                "report": [report for _, _, report in rows],
                # The folder of a report is that of its patient.
                "patient": [report.rpartition("/")[0] for _, _, report in rows],
            }
        ),
        left_out=+left_out,
    )


def draw(
    reports: Iterable[str], read: Callable[[str], bytes], *, pairs: int, seed: int
) -> tuple[dict[str, str], Counter[str]]:
    """Return a random sample of report texts, by name, and the counts of other reports, by reason.

    Args:
        reports: Names of the reports, with or without folders.
        read: Returns the content of a report.
        pairs: Number of reports to draw; 0: all.
        seed: Seed of the draw.
    """
    keys = {name: drawn_key(posixpath.basename(name), seed) for name in reports}
    chosen, texts, left_out = dict[str, str](), set[str](), Counter[str]()
    for name in sorted(keys, key=lambda name: (keys[name], name)):
        if pairs and len(chosen) == pairs:
            break
        text = report_text(read(name))
        reason = EMPTY if not text else REPEATED if text in texts else None
        if reason is not None:
            left_out[reason] += 1
            continue
        texts.add(text)
        chosen[name] = text
    left_out[NOT_DRAWN] = len(keys) - len(chosen) - sum(left_out.values())
    return chosen, left_out


def report_text(data: bytes) -> str:
    """Return the text of a report in UTF-8, or else in cp1252, with single spaces."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("cp1252", "replace")
    return " ".join(text.split())


def drawn_key(name: str, seed: int) -> bytes:
    """Return a pseudo-random sort key of a name: the first rows in this order are a random draw."""
    return hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
