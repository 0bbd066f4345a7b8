"""Files of each kind of published folder that are uploaded to the Hub.

Only files written by the job of that kind are uploaded: a folder may also contain drafts, caches,
additional columns, or private files of the user.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from biovl.core.artifacts import MANIFEST, find_manifest, unpublished
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import Tree, without_credentials

CARD = "README.md"

_CREDENTIAL = re.compile(
    r"://[^/@\s]*:[^/@\s]*@|(?:access_key|secret_key|session_token|password)=\S|\bhf_\w{30}"
)
"""Patterns of URLs that contain credentials, and of Hub tokens."""


@dataclass(frozen=True)
class Kind:
    """Rules for publishing a kind of folder on the Hub: files, and whether it may be public."""

    patterns: tuple[str, ...]
    """Patterns of the files to upload; ``*`` does not match a slash."""
    repo_type: str = "dataset"
    private_because: str | None = None
    """Reason why folders of this kind must stay private, whatever the rights of their rows; None if
    they may be public."""
    has_rights: bool = False
    """Whether rows have licence columns."""


_FIGURES = Kind(("figures/*.parquet", "articles/*.parquet", "tombstones.parquet"), has_rights=True)
_NO_RIGHTS = "nothing in it says of its rows whether they may be given on"

KINDS: Mapping[str, Kind] = {
    "corpus": Kind(
        (
            *("train/*.tar", "val/*.tar", "test/*.tar", "index.parquet", "dropped.parquet"),
            *("stats.json", "plots/*.png"),
        ),
        has_rights=True,
    ),
    "figures": _FIGURES,
    "panels": _FIGURES,
    "columns": Kind(("*.parquet", "*.csv", "*.png", "agreement.json"), private_because=_NO_RIGHTS),
    "concepts": Kind(
        (
            *("pca.npz", "centroids.npy", "*.parquet", "*.png"),
            *("columns/*.parquet", "columns/manifest.json"),
        ),
        private_because="it shows figures, and " + _NO_RIGHTS,
    ),
    "report": Kind(
        (
            *("scores.json", "table.md", "plots/*.png", "plots/*/*.png"),
            *("predictions/*/*.parquet", "leaks/*/*.parquet"),
            "selection/*.parquet",
        ),
        private_because="it holds questions and texts of benchmarks, and " + _NO_RIGHTS,
    ),
    # Made of rows that may be redistributed only.
    "figure_retrieval": Kind(
        (
            *("corpus/*.parquet", "*/queries/*.parquet", "*/qrels/*.parquet", "credits.parquet"),
            *("images/*", "beir/*/*.jsonl", "beir/*/qrels/test.tsv", "eval.yaml"),
            "left_out.parquet",
        ),
    ),
    "model": Kind(
        (
            *("open_clip_config.json", "config.json", "*.safetensors", "tokenizer*.json"),
            *("special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt"),
            *("*.model", "metrics.jsonl", "validation.json", "sweep.json", "plots/*.png"),
            # Data and licences of fine-tuning, which the model's card refers to.
            *("tuned/README.md", "tuned/plots/*.png"),
            # Written from reports; an upload without them deletes those of earlier weights.
            ".eval_results/biovl-*.yaml",
        ),
        repo_type="model",
    ),
}
_ALL = (CARD, MANIFEST)


@dataclass(frozen=True)
class Contents:
    """The files of a folder: those to upload, and others."""

    files: dict[str, int]
    """Files to upload: size in bytes by relative path."""
    left_out: list[str] = field(default_factory=list)
    """Files that are not uploaded."""


def kind_of(uri: str) -> tuple[str, Kind]:
    """Return the kind of a published folder.

    Raises:
        ArtifactError: If nothing is published there, or its kind cannot be uploaded.
    """
    manifest, where = find_manifest(uri), without_credentials(uri)
    if manifest is None:
        raise unpublished(uri)
    kind = manifest.kind
    if kind == "index":
        raise ArtifactError(
            f"{where} holds an index, which one command rebuilds from its model and corpus: "
            "publish these"
        )
    if kind not in KINDS:
        raise ArtifactError(f"{where} holds {kind}, expected one of {', '.join(KINDS)}")
    return kind, KINDS[kind]


def contents(uri: str, kind: Kind) -> Contents:
    """Return the files of a folder that are uploaded, and those that are not.

    Raises:
        ArtifactError: If a file to upload is a symbolic link.
    """
    tree = Tree(uri)
    paths = tree.below(tree.path)
    goes = {
        name: size for name, size in paths.files.items() if matches(name, (*kind.patterns, *_ALL))
    }
    links = sorted(
        name
        for name in {*goes, *paths.refused}
        if matches(name.rstrip("/"), kind.patterns)
        and (name in paths.refused or tree.is_link(f"{tree.path}/{name.partition('/')[0]}"))
    )
    if links:
        raise ArtifactError(
            f"{without_credentials(uri)}: {links[0]} is a link, or an unreadable file; put "
            "a copy in its place"
        )
    left_out = sorted({*paths.files, *paths.refused} - goes.keys())
    return Contents(goes, left_out)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a relative path matches one of the patterns."""
    parts = name.split("/")
    return any(
        len(parts) == pattern.count("/") + 1 and all(map(fnmatchcase, parts, pattern.split("/")))
        for pattern in patterns
    )


def has_credentials(values: Any) -> bool:
    """Return whether any string in nested plain values looks like a credential."""
    if isinstance(values, Mapping):
        return any(map(has_credentials, values.values()))
    if isinstance(values, list | tuple):
        return any(map(has_credentials, values))
    return isinstance(values, str) and _CREDENTIAL.search(values) is not None
