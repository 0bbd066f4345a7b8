"""Upload a published folder to the Hugging Face hub: check rights, filter rows, upload, verify.

The output of this job is the repository, with the folder's own ``manifest.json`` uploaded last. If
rows are filtered, the remaining rows are first published as a folder of the same kind, which any
job can read and from which an interrupted job resumes.
"""

import hashlib
import json
import sys
from collections import Counter
from dataclasses import asdict, replace
from typing import Any, TextIO

from biovl.assemble import finishing, statistics
from biovl.assemble.hub import hub_license
from biovl.core.artifacts import Draft, Input, Manifest, fingerprint, read_manifest, refuse_overlap
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import without_credentials
from biovl.core.folders import Folder
from biovl.core.shards import corpus_files, shard_names
from biovl.publish import corpora, figures
from biovl.publish.config import PublishConfig
from biovl.publish.hub import Repository
from biovl.publish.kinds import CARD, KINDS, Kind, contents, has_credentials, kind_of
from biovl.publish.rights import RequestedRows, rights_of
from biovl.publish.scores import ScoreFiles, score_files
from biovl.publish.sending import upload
from biovl.runtime.connection import connect_ray
from biovl.runtime.failures import explain_resume
from biovl.runtime.job import Job
from biovl.runtime.progress import Progress
from biovl.runtime.units import Stages

_TOLD = 8
"""Maximum number of reasons listed in a message; the rest is counted."""


def publish(config: PublishConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Upload a published folder, or its redistributable rows, to a repository of the hub.

        out/       with license_groups: the uploaded rows, a folder of the same kind
        USER/NAME  at the hub: its files, the manifest last
        out/       without repo: the files with scores; nothing is sent

    Returns:
        The manifest of the upload, which is not written to disk; without ``repo`` that of ``out``.

    Raises:
        ArtifactError: If the folder is not published, or must not be in a public repository.
        StorageError: If the hub, a disk or a bucket fails; run the same command again to resume.
    """
    with explain_resume(config.out or config.folder):
        report = Progress("publish", progress)
        return _publish(config, report) if config.repo else _write_scores(config, report)


def dry_run_text(config: PublishConfig) -> str:
    """Return a description of the upload as text, without sending a request or writing a file."""
    kind, becomes = kind_of(config.folder)
    if not config.repo:
        return "\n".join([*_described(_scores(config, kind)), "Nothing was written or sent.\n"])
    repository = Repository(config.repo, becomes.repo_type)
    found = contents(config.folder, becomes)
    lines = [
        f"folder      {_shown(config)}: {kind}",
        f"to          {repository.url}, a {becomes.repo_type} repository",
        f"            {'public' if config.public else 'private'} if it is made; one that is there "
        "stays as it is, and one that is public counts as public",
        f"files       {len(found.files):,}, {_megabytes(sum(found.files.values()))}",
    ]
    if found.left_out:
        lines.append(
            f"left out    {len(found.left_out):,} files that are not of {kind}: "
            f"{', '.join(found.left_out[:3])}"
        )
    if becomes.has_rights:
        rights = rights_of(config.folder, kind, _wanted(config))
        rows = ", ".join(f"{count:,} {group}" for group, count in sorted(rights.groups.items()))
        lines.append(f"rows        {rights.groups.total():,}: {rows or 'none'}")
        lines.append(f"held back   {rights.refused:,} may not be given on in public")
        lines += [f"            {line}" for line in _first(rights.lines())]
        if config.license_groups:
            left = rights.groups.total() - rights.refused
            lines.append(f"would go    {left:,} rows, by way of {without_credentials(config.out)}")
    if config.reports:
        lines += _described(_scores(config, kind))
    problem = _refusal(config, kind, becomes) if config.public else None
    if problem is not None:
        lines.append(f"refused     {problem}")
    return "\n".join([*lines, "Nothing was written or sent.\n"])


def _publish(config: PublishConfig, report: Progress) -> Manifest:
    kind, becomes = kind_of(config.folder)
    if config.license_groups and not becomes.has_rights:
        raise ArtifactError(
            f"{_shown(config)} holds {kind}, whose rows have no licence group: leave "
            "license_groups out"
        )
    scores = _scores(config, kind)
    repository = Repository(config.repo, becomes.repo_type, bars=sys.stderr.isatty())
    is_private = repository.is_private()
    if config.public and is_private:
        raise ArtifactError(
            f"{repository.url} exists and is private: make it public in its settings, or leave "
            "public out"
        )
    is_public = config.public or is_private is False
    problem = _refusal(config, kind, becomes) if is_public else None
    if problem is not None:
        raise ArtifactError(problem)
    uri = _selected(config, kind, report) if config.license_groups else config.folder
    folder, found = Folder(uri), contents(uri, becomes)
    manifest = read_manifest(uri, kind)
    if has_credentials(asdict(manifest)):
        raise ArtifactError(
            f"{folder.described}: the configuration in its manifest.json holds a credential, which "
            "would go with it: make the folder again with credentials from the environment"
        )
    repository.create(private=not is_public)
    if bool(repository.is_private()) == is_public:
        raise ArtifactError(
            f"{repository.url} was created {'private' if is_public else 'public'}, not as "
            "requested; nothing was sent: check the settings of its owner"
        )
    written = dict(scores.files) if CARD in found.files else _card(config, kind, uri)
    total = sum(found.files.values()) + sum(map(len, written.values()))
    report.say(f"{len(found.files):,} files, {_megabytes(total)}, compared with {repository.url}")
    done: Counter[str] = Counter()

    def sent(files: int, size_bytes: int) -> None:
        done.update(files=files, size_bytes=size_bytes)
        report.say(f"sent {done['files']:,} files, {_megabytes(done['size_bytes'])}")

    counts = upload(repository, folder, found.files, written, becomes.patterns, sent=sent)
    about = {"url": repository.url, "private": not is_public, **counts}
    return replace(manifest, counts=about)


def _scores(config: PublishConfig, kind: str) -> ScoreFiles:
    """Return the files with the scores of ``reports``.

    Raises:
        ArtifactError: If the folder is no model, or a report does not have its scores.
    """
    if not config.reports:
        return ScoreFiles(files={}, mteb={})
    if kind != "model":
        raise ArtifactError(f"{_shown(config)} holds {kind}: reports are of models")
    return score_files(config.folder, config.reports, config.datasets, config.repo)


def _described(scores: ScoreFiles) -> list[str]:
    """Return lines about files with scores, and their contents but for the card's text."""
    lines = []
    for name, content in scores.files.items():
        text = content.decode()
        shown = text.partition("\n---\n")[0] if name == CARD else text
        lines += [f"scores      {name}", *(f"            {line}" for line in shown.splitlines())]
    lines += [f"MTEB        {name}" for name in scores.mteb]
    lines += [f"not MTEB's  {task}: {reason}" for task, reason in scores.not_mteb.items()]
    lines += [f"withheld    {count:,} tasks: {why}" for why, count in scores.withheld.items()]
    return lines or ["scores      none"]


def _write_scores(config: PublishConfig, report: Progress) -> Manifest:
    """Publish the files with a model's scores as a folder."""
    scores = _scores(config, kind_of(config.folder)[0])
    if not scores.files:
        raise ArtifactError(
            "no score may be published: "
            + "; ".join(f"{count:,} tasks: {why}" for why, count in scores.withheld.items())
            + ". Scores on other data need their public name: datasets"
        )
    places = {"model": config.folder, **{f"report {n}": u for n, u in enumerate(config.reports)}}
    inputs = [
        Input(name=name, uri=without_credentials(uri), fingerprint=fingerprint(uri))
        for name, uri in places.items()
    ]
    # The model's card is no part of its fingerprint, and result files depend on what is installed.
    content = repr(sorted({**scores.files, **scores.mteb}.items())).encode()
    inputs.append(Input(name="files", uri="", fingerprint=hashlib.sha256(content).hexdigest()))
    job = Job.of(config, "scores", inputs, output_format=1, without=("folder", "reports"))
    manifest = job.find_published()
    if manifest is None:
        refuse_overlap(config.out, places)
        with job.begin() as draft:
            for name, content in scores.files.items():
                draft.folder.write(name, content)
            for name, content in scores.mteb.items():
                draft.folder.write(f"mteb/{name}", content)
            manifest = job.manifest(
                counts={
                    "files": len(scores.files),
                    "mteb": len(scores.mteb),
                    "withheld": dict(scores.withheld),
                },
                notes={"not_mteb": dict(scores.not_mteb)},
            )
            draft.publish(manifest)
    report.say(f"{len(scores.files):,} files with scores in {without_credentials(config.out)}")
    return manifest


def _refusal(config: PublishConfig, kind: str, becomes: Kind) -> str | None:
    """Return why a folder may not go to a repository that anybody may read, if so."""
    if becomes.private_because is not None:
        return (
            f"{_shown(config)} holds {kind}, which goes to private repositories only: "
            f"{becomes.private_because}"
        )
    if not becomes.has_rights:
        return None
    if config.license_groups:
        rights = rights_of(config.folder, kind, _wanted(config))
        is_none_left = rights.refused == rights.groups.total()
        return f"{_shown(config)} has no row that may go" if is_none_left else None
    rights = rights_of(config.folder, kind, _wanted(config), with_articles=True)
    rows, refused = rights.groups.total(), rights.refused
    if not refused:
        return None
    return "\n  ".join(
        [
            f"{refused:,} of {rows:,} rows of {_shown(config)} may not be given on in public:",
            *_first(rights.lines()),
            'Leave them out by license_groups=["commercial"], or publish privately.',
        ]
    )


def _selected(config: PublishConfig, kind: str, report: Progress) -> str:
    """Publish the rows that may go as a folder of the same kind, and return where."""
    source = read_manifest(config.folder, kind)
    uri = without_credentials(config.folder)
    inputs = [Input(name="selected", uri=uri, fingerprint=fingerprint(config.folder))]
    requested = _wanted(config)
    plain = {**source.config, "selected": {"license_groups": list(requested.groups)}}
    plain["selected"]["third_party"] = requested.third_party
    job = Job(out=config.out, kind=kind, config=plain, inputs=inputs, defaults={})
    if job.find_published() is not None:
        return config.out
    problem = _refusal(config, kind, KINDS[kind])
    if problem is not None:
        raise ArtifactError(problem)
    with job.begin() as draft:
        make = _select_corpus if kind == "corpus" else _select_figures
        source = replace(source, config=plain, inputs=inputs, code=Manifest.code)
        draft.publish(make(config, source, draft, report))
    return config.out


def _select_corpus(
    config: PublishConfig, source: Manifest, draft: Draft, report: Progress
) -> Manifest:
    uri, out, requested = config.folder, config.out, _wanted(config)
    shard = source.config["shard"]
    shards_of: dict[str, int] = draft.once(
        "planned",
        lambda: corpora.plan(
            uri, out, requested, max_bytes=shard["size_mb"] * 1_000_000, max_pairs=shard["pairs"]
        ),
    )
    names = shard_names(shards_of)
    with connect_ray():
        copied = Stages(draft, report).run(
            "copying shard", len(names), corpora.copy, (uri, out, names)
        )
    before: dict[str, Any] = json.loads(Folder(uri).read("stats.json"))
    labels = before.get("labels", {})
    index = corpora.index(uri, out, shards_of)
    indexed = finishing.write_index(draft.folder, index, labels, source.config["text"])
    reasons = finishing.write_dropped(draft.folder, corpora.dropped_rows(uri, requested))
    stats = statistics.statistics(
        indexed.pairs,
        harvested=before["harvested"],
        dropped=reasons,
        labels=corpora.remaining_labels(labels, indexed.labels),
        labels_by_license_group=statistics.labels_by_license_group(indexed.labels),
        # Of the whole corpus: not every rule can be applied to an index.
        not_applied=before.get("not_applied"),
    )
    kept = statistics.pairs_by_split(stats)
    manifest = replace(
        source,
        counts={
            **{name: count for name, count in source.counts.items() if name != "texts"},
            "figures": {**source.counts["figures"], "kept": sum(kept.values())},
            "dropped": stats["dropped"],
            "pairs": kept,
            "shards": shards_of,
            **({"texts": dict(indexed.texts.most_common())} if indexed.texts else {}),
            **({"labels": stats["labels"]} if labels else {}),
        },
        files=corpus_files(draft.folder, names, copied),
        notes=_notes(source, requested),
    )
    finishing.write_description(draft.folder, manifest, stats, corpora.schema_of_records(out))
    return manifest


def _select_figures(
    config: PublishConfig, source: Manifest, draft: Draft, report: Progress
) -> Manifest:
    uri, out, requested = config.folder, config.out, _wanted(config)
    names = figures.part_paths(uri)
    with connect_ray():
        receipts = Stages(draft, report).run(
            "selecting part", len(names), figures.select, (uri, out, requested, names)
        )
    figures.copy_tombstones(uri, out)
    return replace(
        source,
        counts=figures.counts(receipts),
        files={name: receipt["file"] for name, receipt in zip(names, receipts, strict=True)},
        notes=_notes(source, requested),
    )


def _notes(source: Manifest, requested: RequestedRows) -> dict[str, Any]:
    # Their counts are of all rows.
    warnings = [f"before the selection: {warning}" for warning in source.warnings]
    return {
        **source.notes,
        "selected": _note(requested),
        **({"warnings": warnings} if warnings else {}),
    }


def _card(config: PublishConfig, kind: str, uri: str) -> dict[str, bytes]:
    """Return the card of a folder that has none of its own."""
    if kind not in ("figures", "panels"):
        return {}
    licenses = rights_of(uri, kind, RequestedRows(third_party=True)).licenses
    known = sorted({hub_license(name) for name in licenses}) or ["other"]
    return {CARD: figures.card(kind, config.repo.partition("/")[2], known)}


def _shown(config: PublishConfig) -> str:
    return without_credentials(config.folder)


def _wanted(config: PublishConfig) -> RequestedRows:
    return RequestedRows(config.license_groups, config.third_party)


def _note(requested: RequestedRows) -> str:
    others = "third parties' among them" if requested.third_party else "without third parties'"
    return f"rows of licence group {' or '.join(requested.groups)} that may be given on, {others}"


def _first(lines: list[str]) -> list[str]:
    more = len(lines) - _TOLD
    return lines[:_TOLD] + ([f"and {more:,} more reasons and licences"] if more > 0 else [])


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
