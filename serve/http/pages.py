"""Files of a page, each by a route of its own."""

from pathlib import Path

from fastapi import FastAPI, Request, Response
from starlette.staticfiles import StaticFiles


def add_page(app: FastAPI, folder: Path, *, shared: Path | None = None) -> None:
    """Serve the files that are in a folder now; nothing if it has no ``index.html``.

    A mount at ``/`` would answer for every path that has no route, and hide 405.

    Args:
        app: Gets the routes.
        folder: Of the page; ``index.html`` is at ``/`` too.
        shared: Another folder, whose files are served where the first has none of their name.
    """
    if not (folder / "index.html").is_file():
        return
    _add(app, "/", folder, "index.html")
    names: set[str] = set()
    for one in (folder, shared):
        if one is None:
            continue
        for path in sorted(one.rglob("*")):
            name = path.relative_to(one).as_posix()
            if path.is_file() and not path.name.startswith(".") and name not in names:
                names.add(name)
                _add(app, f"/{name}", one, name)


def _add(app: FastAPI, path: str, folder: Path, name: str) -> None:
    files = StaticFiles(directory=folder)

    @app.get(path, include_in_schema=False)
    async def file(request: Request) -> Response:
        response = await files.get_response(name, request.scope)
        # Asked again each time, and mostly answered 304: no mixture of old and new files.
        response.headers["Cache-Control"] = "no-cache"
        return response
