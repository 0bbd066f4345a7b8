"""Endpoints: each file defines ``router(context) -> APIRouter`` and is loaded automatically."""
