"""What is served, as answers state it. Kept for a moment: to ask an engine costs it a search."""

import time
from collections.abc import Mapping
from typing import Any

from serve.engine import Engine
from serve.problems import Problem

KEPT_S = 3.0
"""Until what is served is asked for anew."""
KEPT_AFTER_CHANGE_S = 0.5
"""The same, where an answer came of another version, or nothing was served. Replicas change one
after the other: without this each request in between would ask."""


class Served:
    """Remembers ``Engine.about`` for some seconds, and forgets it when answers show a change."""

    def __init__(self, engine: Engine) -> None:
        """Ask nothing yet."""
        self._engine = engine
        self._about: Mapping[str, Any] = {}
        self._asked = 0.0

    async def model(self, version: str | None = None) -> Mapping[str, Any]:
        """Return what is known of the model.

        Args:
            version: Of the model that answered, where one did.

        Raises:
            Problem: 503 if none is served yet.
        """
        model = (await self._current("model", version)).get("model")
        if not model:
            raise Problem(503, "not-ready", "no model is loaded yet", headers={"Retry-After": "5"})
        found: Mapping[str, Any] = model
        return found

    async def index(self, version: str | None = None) -> Mapping[str, Any]:
        """Return what is known of the index.

        Args:
            version: Of the index that answered, where one did.

        Raises:
            Problem: 503 if none is served.
        """
        index = (await self._current("index", version)).get("index")
        if not index:
            detail = "no index is served here; start the service with index=DIR"
            raise Problem(503, "no-index", detail, headers={"Retry-After": "5"})
        found: Mapping[str, Any] = index
        return found

    async def named(self, version: str | None = None) -> str:
        """Return ``name@version`` of the model."""
        model = await self.model(version)
        return f"{model['name']}@{version or model['version']}"

    async def _current(self, part: str, version: str | None) -> Mapping[str, Any]:
        known = (self._about.get(part) or {}).get("version")
        changed = known is None or version not in (None, known)
        age_s = time.monotonic() - self._asked
        if not self._about or age_s > (KEPT_AFTER_CHANGE_S if changed else KEPT_S):
            self._about = await self._engine.about()
            self._asked = time.monotonic()
        return self._about
