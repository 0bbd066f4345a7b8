"""Endpoints: each file is a plug-in with ``router(context) -> APIRouter``, found by its name."""
