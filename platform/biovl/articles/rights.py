"""What may be done with a figure: decided here, for publishing and for the service alike.

A figure is given on only where something says that it may be. Its article's licence does not bind
a third party whom the figure credits ("reprinted with permission"), so such a figure has no licence
that is known, whatever its article states.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

from biovl.articles.content import License
from biovl.articles.licenses import RESERVED, allowed_by, is_of_others
from biovl.core.records import LicenseGroup

RETRACTED = "retracted"
NOT_ALLOWED = "licence does not allow redistribution"
NOT_STATED = "nothing says that it may be given on"
NO_DERIVATIVES = "panel cut out, and licence does not allow derivatives"
OF_OTHERS = "credits a third party"
REASONS = (RETRACTED, NOT_ALLOWED, NOT_STATED, NO_DERIVATIVES, OF_OTHERS)
"""Why a figure is not given on, in the order in which they are looked for."""

READS = (
    *("license", "license_group", "redistributable", "retracted", "third_party", "credit"),
    *("caption", "derivatives_allowed", "box_px"),
)
"""Columns that say what may be done with a row; older tables lack some."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Terms:
    """The licence of a figure, as far as it is known to hold for it."""

    license: str | None
    """SPDX identifier."""
    group: LicenseGroup
    url: str | None


def reason_to_withhold(row: Row, accepted: Collection[str] = ()) -> str | None:
    """Return why a figure or article is not given on, None where it may be.

    Args:
        row: Those of ``READS`` that its table has. Where that lacks ``redistributable`` its licence
            decides; where it lacks ``third_party``, its ``credit`` and ``caption`` do.
        accepted: Reasons that do not count: whoever gives it on has the right all the same.
    """
    may_go = redistributable(row)
    applies = {
        RETRACTED: bool(row.get("retracted")),
        NOT_ALLOWED: may_go is False,
        NOT_STATED: may_go is None,
        NO_DERIVATIVES: row.get("box_px") is not None and not row.get("derivatives_allowed"),
        OF_OTHERS: credits_third_party(row),
    }
    return next((why for why in REASONS if applies[why] and why not in accepted), None)


def redistributable(row: Row) -> bool | None:
    """Return whether a licence allows to give a row on; None where nothing says so."""
    if "redistributable" in row:
        return cast(bool | None, row["redistributable"])
    return allowed_by(License(row.get("license") or None)).redistributable


def credits_third_party(row: Row) -> bool:
    """Return whether a figure, or a part of it, is said to be somebody else's."""
    stated, credit = row.get("third_party"), row.get("credit")
    if stated is None:
        return is_of_others(row.get("caption") or "", credit)
    return bool(stated or credit)


def terms(row: Row) -> Terms:
    """Return the licence that is known to hold for a figure.

    There is none where it credits a third party, and none where its source has not cleared what
    the licence would allow.
    """
    stated = row.get("license")
    is_cleared = redistributable(row) is not False or stated == RESERVED
    if stated and (credits_third_party(row) or not is_cleared):
        return Terms(None, "other", None)
    group = cast(LicenseGroup, row.get("license_group") or "other")
    if credits_third_party(row):
        group = "other"
    return Terms(stated, group, row.get("license_url"))
