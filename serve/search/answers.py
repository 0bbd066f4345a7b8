"""JSON responses, serialized directly. Message classes document them but do not validate them."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
from fastapi import Response
from pydantic_core import to_json

from biovl.articles import rights
from biovl.index.query import Hit
from serve.http.problems import MEDIA_TYPE
from serve.search.messages import FigureAbout
from serve.search.settings import Rights

NO_STORE = {"Cache-Control": "no-store"}
"""Headers of responses to requests with a private image."""

SCORE_DIGITS = 6
"""Digits after the point of a score, as shown and as compared with a minimum."""

_OF_RIGHTS = (
    *("license", "license_group", "license_url", "stated_license", "third_party"),
    *("image_url", "thumbnail_url", "withheld"),
)
_COLUMNS = tuple(name for name in FigureAbout.model_fields if name not in _OF_RIGHTS)


def json_answer(content: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response; NaN and Inf become null."""
    body = to_json(content, inf_nan_mode="null")
    return Response(body, media_type="application/json", headers=headers)


def nine_digits(row_D: np.ndarray) -> list[float]:
    """Return float32 values rounded to nine significant digits, which halves their size in JSON.

    Nine digits identify every float32 (IEEE 754: 1 + ceil(24 log10(2))).
    """
    values_D = row_D.astype(np.float64)
    sizes_D = np.abs(values_D)
    # An integer divided by a power of ten up to 1e22 is the double nearest to that decimal.
    places_D = 8 - np.floor(np.log10(sizes_D, where=sizes_D > 0, out=np.zeros_like(sizes_D)))
    powers_D = 10.0 ** np.clip(places_D, 0, 22)
    rounded_D = np.rint(values_D * powers_D) / powers_D
    written: list[float] = np.where(places_D > 22, values_D, rounded_D).tolist()
    return written


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI documentation of the problems that are specific to an endpoint.

    Problems common to all endpoints are added by ``serve.http.documentation``.
    """
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _REASONS[status], "content": content} for status in statuses}


_REASONS = {
    403: "The key may not do this, or the image may not be passed on.",
    404: "There is no such figure, model or path.",
    409: "The model is being replaced; send the request again.",
    410: "The index has changed since the cursor was made.",
}


def figure_json(about: Mapping[str, Any], shown: Rights, prefix: str = "") -> dict[str, Any]:
    """Return a row of the metadata table as the JSON fields of ``FigureAbout``.

    Args:
        about: Row of the metadata table.
        shown: Which images may be sent.
        prefix: Path prefix of the service (``route_prefix``), without a trailing slash.
    """
    place = f"{prefix}/v1/figures/{quote(about['figure_id'], safe='')}"
    figure = {name: about.get(name) for name in _COLUMNS}
    terms = rights.terms(about)
    withheld = rights.reason_to_withhold(about, shown.accepted)
    return {
        **figure,
        # Indexes of earlier versions have none.
        "labels": about.get("labels") or [],
        "license": terms.license,
        "license_group": terms.group,
        "license_url": terms.url,
        "stated_license": about.get("stated_license") or about.get("license"),
        "third_party": rights.credits_third_party(about),
        "image_url": None if withheld else f"{place}/image",
        "thumbnail_url": None if withheld else f"{place}/thumbnail",
        "withheld": withheld,
    }


def hits_json(hits: Sequence[Hit], shown: Rights, prefix: str = "") -> list[dict[str, Any]]:
    """Return hits as the JSON fields of ``SearchHit``; arguments as in ``figure_json``."""
    found = []
    for hit in hits:
        figure = figure_json(hit.about, shown, prefix)
        figure["rank"] = hit.rank
        figure["score"] = round(float(hit.score), SCORE_DIGITS)
        figure["matched"] = hit.matched
        found.append(figure)
    return found
