"""Article columns for annotators of texts: columns of ``articles/``, joined by row."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from biovl.core.errors import ConfigError
from biovl.core.folders import Folder
from biovl.core.tables import Table, open_part

PREFIX = "article."
"""Prefix of article columns: annotators read ``article.abstract`` like ``caption``."""

_KEY = "source_uri"
_FOLDER = "articles"
_NOTHING = pa.scalar(None)


def check(table: Table, reads: Sequence[str]) -> None:
    """Reject a table without articles if an annotator reads article columns.

    Raises:
        ConfigError: If there are no articles.
    """
    needed = [name for name in reads if name.startswith(PREFIX)]
    if needed and (_KEY not in table.names or not Folder(table.uri).names(_FOLDER, ".parquet")):
        raise ConfigError(
            f"{table.uri} has no {_FOLDER}/, which {', '.join(needed)} needs: give the "
            "figures that harvest published"
        )


def articles_of(
    table: Table, part: str, uris: pa.Array, names: Sequence[str]
) -> Mapping[str, Mapping[str, pa.Scalar]]:
    """Return article columns by ``source_uri``, reading one row group at a time.

    Args:
        table: Table with the rows.
        part: Name of the part with the rows: ``part-000003-001.parquet`` has its articles in
            ``articles/part-000003-…``.
        uris: Addresses of the requested articles.
        names: Column names as in annotators: ``article.abstract``.
    """
    folder, columns = Folder(table.uri), [name.removeprefix(PREFIX) for name in names]
    unit = part.rpartition("-")[0]
    articles: dict[str, Mapping[str, pa.Scalar]] = {}
    for file_name in folder.names(_FOLDER, ".parquet"):
        if not file_name.startswith(f"{unit}-"):
            continue
        with open_part(folder, f"{_FOLDER}/{file_name}") as parquet:
            for group in range(parquet.num_row_groups):
                keys = parquet.read_row_group(group, columns=[_KEY])[_KEY]
                requested = pc.is_in(keys, uris)
                if not pc.any(requested).as_py():
                    continue
                rows = parquet.read_row_group(group, columns=columns).filter(requested)
                for number, uri in enumerate(keys.filter(requested).to_pylist()):
                    # Columns missing from older versions are null.
                    articles[uri] = {
                        name: rows[column][number] if column in rows.column_names else _NOTHING
                        for name, column in zip(names, columns, strict=True)
                    }
    return articles
