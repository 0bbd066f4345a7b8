"""What can go wrong with a request. Bad data is never an exception: it is a ``defect`` in a row."""


class BiovlError(Exception):
    """A request that cannot be met. The message says what was found, expected and to be done."""


class ConfigError(BiovlError):
    """A configuration is not valid."""


class ArtifactError(BiovlError):
    """A folder is not what a job needs: absent, unfinished, of another kind or made otherwise."""


class NothingUsable(ArtifactError):
    """A job made nothing that another could use; nothing of it is kept."""


class SourceError(BiovlError):
    """A source of packages cannot be read at all (one bad package is a row, not this)."""


class TrainingError(BiovlError):
    """A run is not worth going on with: what it did would come again."""


class StorageError(BiovlError):
    """A disk or bucket does not do its work: full, away, closed to us. Mended, jobs go on."""


class RayError(BiovlError):
    """Ray does not start, or its cluster cannot be reached. Typed again, a job goes on."""
