"""Life cycle of a job: return an earlier result, or begin or resume a draft and publish it.

@entry_point
def index(config: IndexConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    job = Job.of(config, KIND, inputs, output_format=FORMAT, without=["workers"])
    published = job.find_published()
    if published is not None:
        return published
    check(config)                   user errors, before Ray starts
    with job.begin() as draft:
        receipts = Stages(draft, progress).run(…)
        return draft.publish(job.manifest(counts=…, files=…))
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from biovl.core import config as configs
from biovl.core.artifacts import MANIFEST, Draft, Input, Manifest, find_published, fingerprint
from biovl.core.errors import ArtifactError, BiovlError, DamagedTable, NothingUsable
from biovl.core.filesystems import without_credentials
from biovl.core.folders import Folder
from biovl.core.leases import acquire_lease
from biovl.core.tables import damaged_tables
from biovl.runtime.failures import explain_resume

_REPLACED = "replaced_inputs"
"""Note of a draft whose inputs were replaced while it was written."""


_Run = TypeVar("_Run", bound=Callable[..., Any])


def entry_point(run: _Run) -> _Run:
    """Decorate a job's function: check its setting ``config``, and explain how the job resumes.

    Settings from a command line have been checked before; those of a configuration that Python code
    created are checked here.
    """
    signature = inspect.signature(run)

    @functools.wraps(run)
    def checked(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        config = given.arguments["config"]
        with explain_resume(config.out):
            given.arguments["config"] = configs.validated(config)
            return run(*given.args, **given.kwargs)

    return cast(_Run, checked)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job: the folder that it publishes, and everything that the published bytes depend on."""

    out: str
    kind: str
    """Manifest kind of the folder."""

    config: Mapping[str, Any]
    """The settings that the published bytes depend on."""

    inputs: Sequence[Input] = ()
    defaults: configs.Defaults
    """Defaults, for drafts of earlier versions: a setting they do not have counts as its
    default."""

    output_format: int = 1
    """Version of the output format; see ``Draft.begin``."""

    @classmethod
    def of(
        cls,
        config: Any,
        kind: str,
        inputs: Sequence[Input] = (),
        *,
        output_format: int,
        without: Iterable[str] = (),
    ) -> "Job":
        """Return the job for a configuration.

        Args:
            config: Configuration with a setting ``out``.
            kind: Manifest kind of the folder.
            inputs: Published folders that the job reads.
            output_format: Version of the output format; see ``Draft.begin``.
            without: Settings besides ``out`` that do not change the published bytes: equal inputs
                give equal bytes, wherever they are published and with any workers.
        """
        plain = configs.to_plain(config)
        for name in ("out", *without):
            del plain[name]
        return cls(
            out=config.out,
            kind=kind,
            config=plain,
            inputs=inputs,
            defaults=configs.defaults(type(config)),
            output_format=output_format,
        )

    def find_published(self) -> Manifest | None:
        """Return the manifest that the same job published before, or None.

        Raises:
            ArtifactError: If something else is published there, or it shares a folder with an
                input.
            FilesLost: If a file that its manifest lists is missing or has another size.
        """
        return find_published(self.out, self.kind, self.config, self.inputs, defaults=self.defaults)

    @contextlib.contextmanager
    def begin(
        self,
        *,
        plans: Sequence[str] = (),
        accepts: Callable[[Draft, set[str]], bool] = lambda draft, changed: False,
    ) -> Iterator[Draft]:
        """Yield the draft, new or resumed, while a lease keeps other drivers from the folder.

        If no row is usable, the draft is deleted, so that a corrected command can start.

        Args:
            plans: Notes that are cheap to recompute and do not count as finished work.
            accepts: Returns whether a draft may resume although the settings of these names
                changed, because nothing that depends on them has been computed yet.

        Raises:
            ArtifactError: If another driver is writing the folder, or it holds something else, or
                an input was replaced while the draft was written.
        """
        try:
            with acquire_lease(self.out) as lease:
                self._change_settings(accepts)
                draft = Draft.begin(
                    self.out,
                    self.kind,
                    self.config,
                    self.inputs,
                    defaults=self.defaults,
                    output_format=self.output_format,
                    plans=plans,
                )
                check_inputs = self._input_check(draft)

                def check() -> None:
                    lease.check()
                    check_inputs()

                draft.check = check
                yield draft
        except NothingUsable:
            Draft(self.out).abandon()
            raise
        except DamagedTable as error:
            damaged = [path for item in self.inputs for path in damaged_tables(item.uri)]
            where = f"\nCopy or publish it again: {', '.join(damaged[:3])}" if damaged else ""
            raise ArtifactError(f"{error}{where}") from error

    def _change_settings(self, accepts: Callable[[Draft, set[str]], bool]) -> None:
        draft = Draft(self.out)
        begun = draft.read_note("begun")
        if begun is None or begun["kind"] != self.kind:
            return
        before = configs.with_defaults(begun["config"], self.config, self.defaults)
        names = before.keys() | self.config.keys()
        changed = {name for name in names if before.get(name, ...) != self.config.get(name, ...)}
        if changed and accepts(draft, changed):
            draft.note("begun", {**begun, "config": self.config})

    def _input_check(self, draft: Draft) -> Callable[[], None]:
        """Return a function that verifies that the inputs are those that the job began with.

        A folder that another job publishes anew while this one reads it would be read in part as it
        was and in part as it is. The draft keeps a note of that: with the earlier folder back in
        place, the same command must not resume it.

        Raises:
            ArtifactError: If the draft has such a note.
        """
        folders = {item.uri: item.fingerprint for item in self.inputs if _is_published(item)}

        def check() -> None:
            replaced = [
                uri
                for uri, known in folders.items()
                if Folder(uri).exists(MANIFEST) and fingerprint(uri) != known
            ]
            if replaced:
                draft.note(_REPLACED, replaced)
                raise self._mixed(replaced)

        before = draft.read_note(_REPLACED)
        if before:
            raise self._mixed(before)
        return check

    def _mixed(self, replaced: Sequence[str]) -> ArtifactError:
        names = ", ".join(without_credentials(uri) for uri in replaced)
        return ArtifactError(
            f"{names} was published again while this job was reading it, so that "
            f"{without_credentials(self.out)} mixes two versions: remove "
            f"{without_credentials(self.out)}, and run the same command again"
        )

    def manifest(
        self,
        *,
        counts: Mapping[str, Any],
        files: Mapping[str, Mapping[str, Any]] | None = None,
        notes: Mapping[str, Any] | None = None,
        warnings: Sequence[str] = (),
    ) -> Manifest:
        """Return the manifest of the published folder.

        Args:
            counts: Row counts, with the reason of every dropped row.
            files: Rows and size of each file.
            notes: Further information for readers of the folder.
            warnings: Sentences about a result that is doubtful though valid. The command's last
                line and the summary of a chain list them; see ``Manifest.warnings``.
        """
        return Manifest(
            kind=self.kind,
            config=self.config,
            inputs=self.inputs,
            counts=counts,
            files=files or {},
            notes={**(notes or {}), **({"warnings": list(warnings)} if warnings else {})},
        )


def _is_published(item: Input) -> bool:
    """Return whether an input is a published folder, identified by its manifest."""
    # Some locations are names on a hub, or lack the credentials that were needed to read them.
    with contextlib.suppress(BiovlError):
        return (
            item.uri != ""
            and Folder(item.uri).exists(MANIFEST)
            and fingerprint(item.uri) == item.fingerprint
        )
    return False
