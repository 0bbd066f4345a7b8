"""Errors that end a job. Bad data is never an exception: it is a ``defect`` in a row."""


class BiovlError(Exception):
    """A request that cannot be met. The message has the cause, what was expected, and a remedy."""


class ConfigError(BiovlError):
    """A configuration is invalid; the message lists the settings."""


class ArtifactError(BiovlError):
    """A folder is unusable for a job: missing, unfinished, of another kind or configuration."""


class SettingsDiffer(ArtifactError):
    """A folder was begun or published with other settings; jobs may say how to continue it."""


class FilesLost(ArtifactError):
    """Files that a job wrote are missing or truncated; a chain reports which folder to rebuild."""


class NothingUsable(ArtifactError):
    """A job produced no usable row; its draft is deleted."""


class DamagedTable(ArtifactError):
    """A Parquet file of an input cannot be read; the job then looks for damaged files to report."""


class SourceError(BiovlError):
    """A source as a whole cannot be read (one bad package is a row, not an error)."""


class TrainingError(BiovlError):
    """A training run cannot continue: a restart would fail in the same way."""


class TrainingStopped(TrainingError):
    """Training failed too often, but did not diverge; the same command resumes it.

    The cause may be external, such as a lost node, or a setting that needs too much memory.
    """


class RestartNeeded(BiovlError):
    """The training workers must restart; the draft records why, such as a rollback."""


class StorageError(BiovlError):
    """A disk or bucket fails: full, unavailable, access denied. Jobs resume once it works."""


class RayError(BiovlError):
    """Ray does not start, cannot be reached, or loses workers repeatedly. Jobs can be resumed."""
