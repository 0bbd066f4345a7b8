"""Static files of a web page, one route per file."""

from pathlib import Path

from fastapi import FastAPI, Request, Response
from starlette.staticfiles import StaticFiles

from biovl import core

STYLE = Path(core.__file__).parent / "style"
"""Style sheets that all pages share, with the summary page of a chain."""


def add_page(app: FastAPI, folder: Path, *shared: Path) -> None:
    """Add a route for each file of a folder; none if the folder has no ``index.html``.

    A mount at ``/`` would match every path without a route, and hide 405 responses.

    Args:
        app: The application to add routes to.
        folder: Folder of the page; ``index.html`` is also served at ``/``.
        shared: Fallback folders for files that ``folder`` does not contain.
    """
    if not (folder / "index.html").is_file():
        return
    _add(app, "/", folder, "index.html")
    names: set[str] = set()
    for one in (folder, *shared):
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
        # Browsers revalidate every file (mostly 304), so old and new versions are never mixed.
        response.headers["Cache-Control"] = "no-cache"
        return response
