"""Print the tables of BIOMEDICA for a corpus, next to the numbers of the paper, as Markdown."""

import argparse
import json
import sys

from biovl.core.artifacts import read_manifest
from biovl.core.errors import ArtifactError, BiovlError
from biovl.core.folders import Folder


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", help="a folder that assemble published, local or s3://")
    try:
        print(tables_of(parser.parse_args().corpus), end="")
    except BiovlError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def tables_of(corpus: str) -> str:
    """Return BIOMEDICA's tables for a published corpus, as Markdown.

    Raises:
        ArtifactError: If it is not a corpus, or an earlier version of biovl made it, whose
            statistics lack some numbers.
    """
    # Imported here, so that --help comes at once.
    from biovl.assemble.tables import tables

    read_manifest(corpus, "corpus")
    stats = json.loads(Folder(corpus).read("stats.json"))
    if "labels_by_license_group" not in stats:
        raise ArtifactError(
            f"{corpus}: an earlier version of biovl counted less. Assemble it again into another "
            "folder"
        )
    return tables(stats)
