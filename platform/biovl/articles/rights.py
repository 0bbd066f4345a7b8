"""Reuse rights of figures, shared by publishing and the search service.

A figure is redistributed only if a licence permits it. The article's licence does not bind a third
party whom the figure credits ("reprinted with permission"), so the licence of such a figure is
unknown, whatever its article states.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

from biovl.articles.content import License
from biovl.articles.credits import is_of_others
from biovl.articles.licenses import RESERVED, allowed_by
from biovl.core.records import LicenseGroup

RETRACTED = "retracted"
NOT_ALLOWED = "licence does not allow redistribution"
NOT_STATED = "nothing says that it may be given on"
NO_DERIVATIVES = "panel cut out, and licence does not allow derivatives"
OF_OTHERS = "credits a third party"
REASONS = (RETRACTED, NOT_ALLOWED, NOT_STATED, NO_DERIVATIVES, OF_OTHERS)
"""Reasons to withhold a figure, in the order in which they are checked."""

READS = (
    *("license", "license_group", "redistributable", "retracted", "third_party", "credit"),
    *("caption", "derivatives_allowed", "box_px", "cut_out", "figure_id", "parent_figure_id"),
)
"""Columns about the rights of a row; older tables lack some."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Terms:
    """The licence of a figure, as far as it is known to apply."""

    license: str | None
    """SPDX identifier of the licence; None if unknown."""
    group: LicenseGroup
    url: str | None


def reason_to_withhold(row: Row, accepted: Collection[str] = ()) -> str | None:
    """Return why a figure or article is not redistributed, None if it may be.

    Args:
        row: The columns of ``READS`` that its table has. Without ``redistributable`` the licence
            decides; without ``third_party``, its ``credit`` and ``caption`` do.
        accepted: Reasons to ignore, if the user has the rights by other means.
    """
    may_go = redistributable(row)
    applies = {
        RETRACTED: bool(row.get("retracted")),
        NOT_ALLOWED: may_go is False,
        NOT_STATED: may_go is None,
        # Where no licence is stated, there is none that could forbid derivatives.
        NO_DERIVATIVES: may_go is not None and not derivatives_allowed(row) and is_cut_out(row),
        OF_OTHERS: credits_third_party(row),
    }
    return next((why for why in REASONS if applies[why] and why not in accepted), None)


def redistributable(row: Row) -> bool | None:
    """Return whether a licence permits redistribution of a row; None if no licence is stated."""
    if "redistributable" in row:
        return cast(bool | None, row["redistributable"])
    return allowed_by(License(row.get("license") or None)).redistributable


def derivatives_allowed(row: Row) -> bool | None:
    """Return whether a licence permits derivatives of a row; None if no licence is stated."""
    stated = row.get("derivatives_allowed")
    if stated is not None:
        return bool(stated)
    return allowed_by(License(row.get("license") or None)).derivatives


def is_cut_out(row: Row) -> bool:
    """Return whether a row is a panel cut out of a figure, which may be a derivative work.

    Corpora and indexes of earlier versions have no column for this. There, a panel's id is its
    figure's id followed by ``_p`` and the panel's label.
    """
    if "box_px" in row:
        return row["box_px"] is not None
    if row.get("cut_out") is not None:
        return bool(row["cut_out"])
    figure_id = row.get("figure_id") or ""
    if "parent_figure_id" in row:
        return figure_id.startswith(f"{row['parent_figure_id']}_p")
    return re.search(r"_p[^_]+\Z", figure_id) is not None


def credits_third_party(row: Row) -> bool:
    """Return whether a figure, or a part of it, is credited to a third party."""
    stated, credit = row.get("third_party"), row.get("credit")
    if stated is None:
        return is_of_others(row.get("caption") or "", credit)
    return bool(stated) or is_of_others("", credit)


def terms(row: Row) -> Terms:
    """Return the licence that is known to apply to a figure.

    There is none if it credits a third party, or if its source has not cleared it for reuse.
    """
    stated = row.get("license")
    is_cleared = redistributable(row) is not False or stated == RESERVED
    if stated and (credits_third_party(row) or not is_cleared):
        return Terms(None, "other", None)
    group = cast(LicenseGroup, row.get("license_group") or "other")
    if credits_third_party(row):
        group = "other"
    return Terms(stated, group, row.get("license_url"))
