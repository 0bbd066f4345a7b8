"""Where a location is: local folders and buckets alike."""

import os

import pyarrow.fs as pafs

from biovl.errors import ArtifactError


def open_location(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a location and the path in it.

    Args:
        uri: A local path, ``file:///…`` or ``s3://bucket/prefix``. Credentials, region and
            endpoint come from the environment as for every AWS client (``AWS_ENDPOINT_URL``) or
            from the URI (``s3://anonymous@bucket/prefix?region=us-east-1``).

    Raises:
        ArtifactError: If the location is of no kind we know.
    """
    if "://" not in uri:
        return pafs.LocalFileSystem(), os.path.abspath(os.path.expanduser(uri))
    try:
        filesystem, path = pafs.FileSystem.from_uri(uri)
    except (ValueError, OSError) as error:
        raise ArtifactError(f"{uri} is no location that can be opened: {error}") from error
    return filesystem, path.rstrip("/")
