"""Artifacts: the folders that jobs read and publish, on local disks and ``s3://`` alike.

A folder is published by its ``manifest.json``, written last: a folder with a manifest is complete,
a folder without one is not. Until then, a ``.draft`` folder inside it holds what an interrupted job
needs to resume: the configuration, the plan and a receipt for every finished unit of work.
Manifests contain no times and no output paths, so that the same input gives the same bytes.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow.fs as pafs

import biovl
from biovl.core import config as configs
from biovl.core.errors import ArtifactError, FilesLost, SettingsDiffer
from biovl.core.filesystems import is_within, translate_storage_errors, without_credentials
from biovl.core.folders import DRAFT, UNFINISHED, Folder

MANIFEST = "manifest.json"
COLUMNS = "columns"
"""The manifest kind of folders of columns, and the name of their subfolder in a table's folder."""
_STARTED = ("begun", "lease", "reserved")
_OTHER_FORMAT = (
    " (output_format is the version of what the job writes: this version of biovl writes other "
    "bytes, and no folder mixes those of two.)"
)
_OTHER_INPUTS = (
    " (inputs are compared by a hash of their content, which has changed: with the former content "
    "in the same place this folder is accepted.)"
)
_SCRATCH = (f"{UNFINISHED}/", f"{DRAFT}/ray/")
"""Files of a draft that exist before any work is done: the lease, and Ray Train's own files."""


@dataclass(frozen=True, kw_only=True)
class Input:
    """Input of a job: a published folder, or another file or folder, such as weights."""

    name: str
    uri: str
    """Where it lies; empty for what was computed and lies nowhere."""
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Manifest of a published folder: its files, row counts and provenance."""

    kind: str
    config: Mapping[str, Any]
    counts: Mapping[str, Any]
    inputs: Sequence[Input] = ()
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Each file of data: ``size_bytes``, and where they apply ``rows`` and ``sha256``. Files that
    people may edit, such as a model card, are not listed."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Further information for readers of the folder: versions, measurements, conventions."""
    code: str = f"biovl {biovl.__version__}"

    @property
    def warnings(self) -> list[str]:
        """Sentences about a result that is doubtful though valid, in ``notes``."""
        return list(self.notes.get("warnings", []))


def find_manifest(uri: str) -> Manifest | None:
    """Return the manifest of a folder, or None if nothing is published there.

    Raises:
        ArtifactError: If the manifest cannot be read.
    """
    folder = Folder(uri)
    if not folder.exists(MANIFEST):
        return None
    try:
        values = json.loads(folder.read(MANIFEST))
        inputs = [Input(**item) for item in values.pop("inputs")]
        return Manifest(**values, inputs=inputs)
    except (ValueError, TypeError, KeyError) as error:
        raise ArtifactError(f"{uri}/{MANIFEST} is not a manifest of biovl: {error}") from error


def read_manifest(uri: str, *kinds: str) -> Manifest:
    """Return the manifest of a folder of one of the given kinds.

    Raises:
        ArtifactError: If the folder is not published or is of another kind.
    """
    manifest = find_manifest(uri)
    if manifest is None:
        raise unpublished(uri, *kinds)
    if manifest.kind not in kinds:
        raise ArtifactError(f"{uri} holds {manifest.kind}, expected {' or '.join(kinds)}")
    return manifest


def fingerprint(uri: str) -> str:
    """Return a hash of a published folder's manifest, which identifies its content.

    Raises:
        ArtifactError: If the folder is not published.
    """
    if not Folder(uri).exists(MANIFEST):
        raise unpublished(uri)
    return hashlib.sha256(Folder(uri).read(MANIFEST)).hexdigest()


def recorded_inputs(uri: str) -> dict[str, str] | None:
    """Return the fingerprints of the inputs of a folder's job, by name and URI: ``corpus DIR``.

    None if no job has started or published there.
    """
    manifest, begun = find_manifest(uri), Draft(uri).read_note("begun")
    if manifest is not None:
        begun = _identity(manifest.kind, manifest.config, manifest.inputs)
    return None if begun is None else dict(begun["inputs"])


class Draft:
    """A folder in progress. An interrupted job resumes from it."""

    def __init__(self, uri: str) -> None:
        self.folder = Folder(uri)
        self.check: Callable[[], None] = lambda: None
        """Raises ArtifactError if another driver has taken over the folder, or if an input was
        replaced."""

    @classmethod
    def begin(
        cls,
        uri: str,
        kind: str,
        plain_config: Mapping[str, Any],
        inputs: Sequence[Input] = (),
        *,
        defaults: configs.Defaults | None = None,
        output_format: int = 1,
        plans: Sequence[str] = (),
    ) -> "Draft":
        """Return a new draft, or resume the one that an interrupted run of the job left behind.

        The interrupted run may have used an earlier version of biovl. A draft without any finished
        work is replaced if the configuration changed.

        Args:
            uri: The folder to publish.
            kind: Manifest kind of the folder.
            plain_config: The settings that the published bytes depend on.
            inputs: Published folders that the job reads.
            defaults: ``configs.defaults`` of the configuration: a setting that an earlier version
                did not have counts as its default.
            output_format: Version of the output format. Increment it with a code change that alters
                the published bytes, so that no folder mixes the output of two versions.
            plans: Notes that are cheap to recompute and do not count as finished work. A name that
                ends in a slash is a folder of the draft.

        Raises:
            ArtifactError: If the folder was begun or published with another configuration, or holds
                something else.
        """
        draft = cls(uri)
        wanted = _identity(kind, plain_config, inputs, output_format)
        begun = draft.read_note("begun")
        if begun is not None:
            try:
                _refuse_changes(uri, "was begun", begun, wanted, defaults)
            except ArtifactError:
                if not draft._is_untouched(plans):
                    raise
                for name in plans:
                    if name.endswith("/"):
                        draft.folder.delete_folder(f"{DRAFT}/{name}".rstrip("/"))
                    elif draft.folder.exists(f"{DRAFT}/{name}.json"):
                        draft.delete_note(name)
                draft.note("begun", wanted)
            draft.folder.delete_folder(UNFINISHED)
            return draft
        present = [name for name in draft.folder.entries() if name != DRAFT]
        if present:
            raise ArtifactError(
                f"{uri} is not empty ({', '.join(present[:3])} …) and was not begun by this job: "
                "choose another folder for out, or empty this one"
            )
        draft.note("begun", wanted)
        return draft

    def _is_untouched(self, plans: Sequence[str]) -> bool:
        """Return whether the draft contains only files that every start writes."""
        selector = pafs.FileSelector(self.folder.path, recursive=True, allow_not_found=True)
        with translate_storage_errors(self.folder.described):
            present = self.folder.filesystem.get_file_info(selector)
        made_by_starting = {f"{DRAFT}/{name}.json" for name in (*_STARTED, *plans)}
        scratch = (*_SCRATCH, *(f"{DRAFT}/{name}" for name in plans if name.endswith("/")))
        names = (
            info.path.removeprefix(self.folder.path.rstrip("/") + "/")
            for info in present
            if info.type == pafs.FileType.File
        )
        return all(name in made_by_starting or name.startswith(scratch) for name in names)

    def note(self, name: str, values: Any) -> None:
        """Store values in the draft for a later run of this job."""
        self.folder.write(f"{DRAFT}/{name}.json", to_json(values))

    def read_note(self, name: str) -> Any | None:
        """Return the values that an earlier run stored, or None.

        Raises:
            ArtifactError: If the file is damaged.
        """
        file = f"{DRAFT}/{name}.json"
        if not self.folder.exists(file):
            return None
        try:
            return json.loads(self.folder.read(file))
        except ValueError as error:
            what = "this folder" if name == "begun" else "this file, and its step is repeated"
            raise ArtifactError(
                f"{self.folder.described}/{file} is damaged ({error}): delete {what}, or choose "
                "another folder for out"
            ) from error

    def delete_note(self, name: str) -> None:
        """Delete the values of a name, which must exist."""
        with translate_storage_errors(self.folder.described):
            self.folder.filesystem.delete_file(self.folder.at(f"{DRAFT}/{name}.json"))

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the values stored under a name by an earlier run, or compute and store them."""
        if not self.folder.exists(f"{DRAFT}/{name}.json"):
            self.note(name, make())
        # Read back even if just computed: a resumed run must see exactly the same values.
        return self.read_note(name)

    def note_names(self, prefix: str) -> list[str]:
        """Return the sorted names of the notes under ``prefix/``."""
        names = self.folder.names(f"{DRAFT}/{prefix}", ".json")
        return [f"{prefix}/{name.removesuffix('.json')}" for name in names]

    def publish(self, manifest: Manifest) -> Manifest:
        """Write the manifest, which completes the folder, and delete the draft.

        Raises:
            FilesLost: If a file that the manifest lists is missing or has another size: a disk may
                have lost it since it was written.
            ArtifactError: If another driver has taken over the folder, or an input was replaced.
        """
        self.check()
        check_files(self.folder, manifest, "choose another folder for out, or delete this one")
        self.folder.write(MANIFEST, to_json(asdict(manifest)))
        self.clear()
        return manifest

    def abandon(self) -> None:
        """Delete everything that was written, so that another configuration can use the folder.

        A draft starts in an empty folder, so all its contents belong to this job.
        """
        with translate_storage_errors(self.folder.described):
            self.folder.filesystem.delete_dir_contents(self.folder.path, missing_dir_ok=True)
        if isinstance(self.folder.filesystem, pafs.LocalFileSystem):
            # A mount point or a link is kept.
            with contextlib.suppress(OSError):
                os.rmdir(self.folder.path)

    def clear(self) -> None:
        """Delete the files that are needed only until the folder is published."""
        self.folder.delete_folder(DRAFT)


def check_files(folder: Folder, manifest: Manifest, advice: str) -> None:
    """Check that the files in a manifest exist with the listed sizes, without reading them.

    Args:
        folder: The folder of the manifest.
        manifest: Its manifest.
        advice: What the user should do, for the message.

    Raises:
        FilesLost: If a file is missing or has another size; the message has the first three.
    """
    expected = {
        name: stated["size_bytes"]
        for name, stated in manifest.files.items()
        if "size_bytes" in stated
    }
    found = folder.sizes(expected)
    lost = [name for name, size in expected.items() if found.get(name) != size]
    if lost:
        lines = [
            f"{name}: written with {expected[name]:,} bytes, "
            + (f"has {found[name]:,}" if name in found else "missing")
            for name in lost[:3]
        ]
        more = [f"and {len(lost) - 3:,} more"] if len(lost) > 3 else []
        raise FilesLost(
            f"{folder.described} lacks what its job wrote, {len(lost):,} of {len(expected):,} "
            "files:\n  " + "\n  ".join([*lines, *more]) + f"\n{advice.capitalize()}."
        )


def find_published(
    uri: str,
    kind: str,
    plain_config: Mapping[str, Any],
    inputs: Sequence[Input] = (),
    *,
    defaults: configs.Defaults | None = None,
) -> Manifest | None:
    """Return the manifest of a folder that the same job published before, or None.

    The arguments are those of ``Draft.begin``.

    Raises:
        ArtifactError: If something else is published there, or it shares a folder with an input.
        FilesLost: If a file that the manifest lists is missing or has another size.
    """
    manifest = find_manifest(uri)
    if manifest is None:
        # Columns may be published inside the folder of their table.
        refuse_overlap(
            uri,
            {item.name: item.uri for item in inputs if item.uri},
            may_lie_within=kind == COLUMNS,
        )
        return None
    found = _identity(manifest.kind, manifest.config, manifest.inputs)
    expected = _identity(kind, plain_config, inputs)
    _refuse_changes(uri, "was published", found, expected, defaults)
    check_files(
        Folder(uri), manifest, "copy these files back, or remove the folder and run the job again"
    )
    Draft(uri).clear()
    return manifest


def refuse_overlap(out: str, inputs: Mapping[str, str], *, may_lie_within: bool = False) -> None:
    """Reject an output folder that overlaps an input: a later job would read output as input.

    Args:
        out: The folder to publish.
        inputs: The folders that are read, by setting name.
        may_lie_within: Whether ``out`` may be a subfolder of an input.

    Raises:
        ArtifactError: If an input equals ``out``, is inside it, or contains it.
    """
    for name, uri in inputs.items():
        if is_within(uri, out):
            where = "is what" if is_within(out, uri) else "holds what"
            raise ArtifactError(
                f"out: {out} {where} is read ({name}: {uri}): publish to a separate folder"
            )
        if is_within(out, uri) and not may_lie_within:
            raise ArtifactError(
                f"out: {out} lies within what is read ({name}: {uri}), so that it would be read as "
                f"a part of it next time: publish to a folder outside of {uri}"
            )


def _identity(
    kind: str, plain_config: Mapping[str, Any], inputs: Sequence[Input], output_format: int = 1
) -> dict[str, Any]:
    """Return the values that must be equal for two runs to be the same job."""
    read = {
        f"{item.name} {configs.normalized_location(item.uri)}": item.fingerprint for item in inputs
    }
    config = dict(plain_config)
    return {"kind": kind, "config": config, "inputs": read, "output_format": output_format}


def unpublished(uri: str, *kinds: str) -> ArtifactError:
    """Return the error for a folder without a manifest; its message states the likely reason.

    Args:
        uri: The folder.
        kinds: Expected kinds of the folder; none if any kind will do.
    """
    folder = Folder(uri)
    with translate_storage_errors(folder.described):
        found = folder.filesystem.get_file_info(folder.path).type
    if found == pafs.FileType.NotFound:
        reason = "it does not exist"
    elif found != pafs.FileType.Directory:
        reason = "it is a file"
    elif folder.exists(f"{DRAFT}/begun.json"):
        reason = "the job that writes it has not finished; run it again"
    else:
        reason = "it is a folder that biovl did not publish"
    expected = f". Expected a published folder of kind {' or '.join(kinds)}" if kinds else ""
    return ArtifactError(f"{without_credentials(uri)} has no {MANIFEST}: {reason}{expected}")


def _refuse_changes(
    uri: str,
    happened: str,
    found: Mapping[str, Any],
    expected: Mapping[str, Any],
    defaults: configs.Defaults | None,
) -> None:
    # Drafts of the first versions record the version that began them, not their format.
    if found["kind"] != expected["kind"]:
        raise ArtifactError(
            f"{uri} {happened} as {found['kind']}, and this job publishes {expected['kind']}: "
            "choose another folder for out, or remove this one"
        )
    found = {"output_format": 1, **found}
    found.pop("code", None)
    found["config"] = configs.with_defaults(found["config"], expected["config"], defaults or {})
    changes = configs.differences(found, expected)
    is_other_content = any(
        found["inputs"].get(name, known) != known for name, known in expected["inputs"].items()
    )
    if changes:
        raise SettingsDiffer(
            f"{uri} {happened} by another configuration; what differs now:\n  "
            + "\n  ".join(changes)
            + "\nChoose another folder for out, or remove this one."
            + (_OTHER_FORMAT if found["output_format"] != expected["output_format"] else "")
            + (_OTHER_INPUTS if is_other_content else "")
        )


def to_json(values: Any) -> bytes:
    """Serialize plain values to canonical JSON: equal values give equal bytes."""
    return json.dumps(values, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"
