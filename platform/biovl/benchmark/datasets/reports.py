"""Images with reports in the layout of MIMIC-CXR: ``…/s50414267.txt`` and ``…/s50414267/*.jpg``.

``report.txt`` next to ``report.jpg`` is read as well. BMC-LongCLIP's benchmark is 1,000 unique
pairs of MIMIC-CXR (arXiv:2510.03978, appendix B): an image of each report, with its whole text.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa

from biovl.benchmark import selection
from biovl.benchmark.datasets import Pairs
from biovl.benchmark.datasets.folder import ENDINGS
from biovl.benchmark.stored_images import ImageFiles, hash_of, version_of
from biovl.core.artifacts import Folder
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import Tree

NO_IMAGES, NOT_DRAWN, REPEATED = "report without an image", "not drawn", "text of another report"


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
        raise ArtifactError(f"{config.path} is no folder of reports: {error}") from error
    images: dict[str, list[str]] = {}
    for name in files:
        if name.lower().endswith(ENDINGS):
            for of in (name.rpartition("/")[0], name.rpartition(".")[0]):
                images.setdefault(of, []).append(name)
    reports = [name for name in files if name.lower().endswith(".txt")]
    with_images = [name for name in reports if images.get(name[:-4])]
    left_out = Counter({NO_IMAGES: len(reports) - len(with_images)})
    order = sorted(with_images, key=lambda name: drawn_key(name, config.seed))
    chosen, texts = dict[str, str](), set[str]()
    for name in order:
        if config.pairs and len(chosen) == config.pairs:
            break
        text = " ".join(folder.read(name).decode("utf-8", "replace").split())
        if text in texts:
            left_out[REPEATED] += 1
            continue
        texts.add(text)
        chosen[name] = text
    left_out[NOT_DRAWN] = len(with_images) - len(chosen) - left_out[REPEATED]
    rows = [
        (image, chosen[name], name)
        for name in sorted(chosen)
        for image in images[name[:-4]][: config.images or None]
    ]
    names = tuple(image for image, _, _ in rows)
    return selection.pairs(
        name=config.path.rstrip("/").rpartition("/")[2],
        images=ImageFiles(
            config.path, names, hash_of([version_of(folder, name) for name in names])
        ),
        texts=[text for _, text, _ in rows],
        ids=names,
        about=pa.table({"report": [report for _, _, report in rows]}),
        left_out=+left_out,
    )


def drawn_key(name: str, seed: int) -> bytes:
    """Return a pseudo-random sort key of a name: the first rows in this order are a random draw."""
    return hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
