"""Cache of the engine's description for responses: ``Engine.about`` costs as much as a search."""

import time
from collections.abc import Mapping
from typing import Any

from serve.http.problems import Problem
from serve.search.engine import Engine, no_index

KEPT_S = 3.0
"""Lifetime of a cache entry, in seconds."""
KEPT_AFTER_CHANGE_S = 0.5
"""Lifetime, in seconds, while nothing is served or results are of an unknown index. Replicas reload
one after the other: without this every request in between would call the engine."""
_REMEMBERED = 8
"""Number of previous models and indexes to remember: their results may still arrive."""


class DescriptionCache:
    """Cache of ``Engine.about`` for a few seconds; keeps those of earlier versions longer."""

    def __init__(self, engine: Engine) -> None:
        """Create an empty cache."""
        self._engine = engine
        self._about: Mapping[str, Any] = {}
        self._asked = 0.0
        self._names: dict[str, str] = {}
        self._indexes: dict[str, Mapping[str, Any]] = {}

    async def model(self) -> Mapping[str, Any]:
        """Return the description of the model.

        Raises:
            Problem: 503 if no model is served yet.
        """
        found: Mapping[str, Any] | None = (await self._current("model")).get("model")
        if not found:
            raise Problem(503, "not-ready", "no model is loaded yet", headers={"Retry-After": "5"})
        return found

    async def index(self) -> Mapping[str, Any]:
        """Return the description of the index.

        Raises:
            Problem: 503 if no index is served.
        """
        found: Mapping[str, Any] | None = (await self._current("index")).get("index")
        if not found:
            raise no_index()
        return found

    async def index_of(self, version: str) -> Mapping[str, Any]:
        """Return the description of an index version; empty if it is unknown."""
        if version not in self._indexes and self._age_s() > KEPT_AFTER_CHANGE_S:
            await self._ask()
        return self._indexes.get(version, {})

    async def versioned_name(self, version: str | None = None) -> str:
        """Return a model version as text: ``name@version``.

        Args:
            version: Version of the model; by default the one served.

        Raises:
            Problem: 503 if the name of this version is no longer cached because models changed too
                fast.
        """
        if version is None:
            version = str((await self.model())["version"])
        if version not in self._names:
            await self._ask()
        name = self._names.get(version)
        if name is None:
            detail = "the model was replaced during the request; send it again"
            raise Problem(503, "model-exchanged", detail, headers={"Retry-After": "1"})
        return f"{name}@{version}"

    async def _current(self, part: str) -> Mapping[str, Any]:
        if self._age_s() > (KEPT_S if self._about.get(part) else KEPT_AFTER_CHANGE_S):
            await self._ask()
        return self._about

    def _age_s(self) -> float:
        return time.monotonic() - self._asked if self._about else float("inf")

    async def _ask(self) -> None:
        self._about = about = await self._engine.about()
        self._asked = time.monotonic()
        model, index = about.get("model"), about.get("index")
        if model:
            self._names[str(model["version"])] = str(model["name"])
        if index:
            self._indexes[str(index["version"])] = index
        for cached in (self._names, self._indexes):
            while len(cached) > _REMEMBERED:
                del cached[next(iter(cached))]
