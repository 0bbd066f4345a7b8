"""URL of a bucket: the endpoint itself, or a path below it with the name of the bucket."""

from urllib.parse import urlsplit

from biovl.core.errors import SourceError, StorageError
from biovl.core.limits import Limiter
from biovl.harvest.pmc.client import BucketClient, Patience


def bucket_url(endpoint: str, bucket: str, limiter: Limiter, patience: Patience) -> str:
    """Return the URL of a bucket: the endpoint itself, or the bucket's name below it.

    Raises:
        SourceError: If neither can be listed.
        StorageError: If the endpoint fails.
    """
    if endpoint.startswith("s3://"):
        endpoint = f"https://{endpoint.removeprefix('s3://').strip('/')}.s3.amazonaws.com"
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise SourceError(
            f"source.endpoint: expected http://… or https://…, where the bucket is, got {endpoint}"
        )
    base = endpoint.rstrip("/")
    tried = [base] if base.endswith(f"/{bucket}") else [base, f"{base}/{bucket}"]
    reasons = []
    for url in tried:
        with BucketClient(url, limiter, patience) as service:
            try:
                service.folders("inventory-reports/")
                return url
            except (SourceError, StorageError) as error:
                if isinstance(error, StorageError) and "NoSuchBucket" not in str(error):
                    raise
                reasons.append(error)
    raise reasons[-1]
