"""The services that are compared, each in a process of its own that ends when its input does.

python serve_servers.py serve|app|plain|clip_back '{"model": …, "index": …, "port": …}'
"""

import asyncio
import json
import os
import sys
import threading
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "platform")]


def on_serve(asked: dict[str, Any]) -> None:
    """Our application on Ray Serve, fused."""
    os.environ.update({"RAY_worker_niceness": "0"})
    if asked.get("ha"):
        # Read when Ray starts; as serve/config.yaml says.
        os.environ["RAY_SERVE_ENABLE_HA_PROXY"] = "1"
        os.environ["RAY_SERVE_THROUGHPUT_OPTIMIZED"] = "1"
        os.environ["RAY_SERVE_HAPROXY_NBTHREAD"] = "1"
    import ray
    from ray import serve

    from serve.app import build

    path = os.pathsep.join([str(ROOT), str(ROOT / "platform"), os.environ.get("PYTHONPATH", "")])
    threads = os.environ["OMP_NUM_THREADS"]
    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": path, "OMP_NUM_THREADS": threads}},
    )
    serve.start(
        http_options={"host": "127.0.0.1", "port": asked["port"]},
        logging_config={"enable_access_log": False, "log_level": "ERROR"},
    )
    settings = {"model": asked["model"], "index": asked["index"], **asked.get("settings", {})}
    serve.run(build(settings), name="biovl", route_prefix="/")
    _wait()
    serve.shutdown()
    ray.shutdown()


def app(asked: dict[str, Any]) -> None:
    """Our application under plain uvicorn."""
    import uvicorn

    from serve.search.api import http_api
    from serve.search.local import LocalEngine
    from serve.search.settings import Settings

    settings = Settings(model=asked["model"], index=asked["index"])
    engine = LocalEngine(settings)
    _end_with_input()
    uvicorn.run(
        http_api(settings, engine, on_start=engine.start, on_stop=engine.close),
        host="127.0.0.1",
        port=asked["port"],
        access_log=False,
        log_level="warning",
    )


def plain(asked: dict[str, Any]) -> None:
    """As little as one would write by hand: the same batcher, model and index, nothing else."""
    import uvicorn
    from fastapi import FastAPI
    from fastapi.responses import JSONResponse
    from pydantic import BaseModel

    from biovl.index.query import Query, QueryPart
    from biovl.index.search import Index
    from biovl.models.encoder import load
    from serve.search.batcher import Batcher

    encoder = load(asked["model"])
    index = Index.open(asked["index"])
    batcher: Any = Batcher(encoder.embed_tokens, name="texts", batch_max=64, queue_max=512)

    class Asked(BaseModel):
        text: str
        k: int

    service = FastAPI()

    @service.get("/readyz")
    async def readyz() -> str:
        return "ready"

    @service.post("/v1/search")
    async def search(message: Asked) -> JSONResponse:
        (vector_D,) = await batcher(encoder.preparation.encode([message.text]))
        query = Query(parts=(QueryPart(vector_D=vector_D, kind="text"),), k=message.k)
        results = await asyncio.to_thread(index.search, query)
        return JSONResponse(
            [{"rank": hit.rank, "score": hit.score, **hit.about} for hit in results.hits]
        )

    _end_with_input()
    uvicorn.run(
        service, host="127.0.0.1", port=asked["port"], access_log=False, log_level="warning"
    )


def clip_back(asked: dict[str, Any]) -> None:
    """clip-retrieval's back end, as it is, with our model: its own are downloaded.

    Its folder has ``image.index`` and ``metadata/*.parquet``, which this writes.
    """
    import importlib.util
    import logging

    import faiss
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch

    from biovl.models.encoder import load

    folder = Path(asked["folder"])
    if not (folder / "image.index").exists():
        (folder / "metadata").mkdir(parents=True, exist_ok=True)
        index = faiss.read_index(f"{asked['index']}/images.faiss")
        ivf = faiss.try_extract_index_ivf(index)
        if ivf is not None:
            ivf.nprobe = asked["nprobe"]
        faiss.write_index(index, str(folder / "image.index"))
        with pa.memory_map(f"{asked['index']}/table.arrow") as file:
            table = pa.ipc.open_file(file).read_all()
        lists = [f.name for f in table.schema if pa.types.is_list(f.type)]
        pq.write_table(table.drop_columns(lists), folder / "metadata/metadata_0.parquet")
    encoder = load(asked["model"])

    class Model:
        def encode_text(self, tokens: Any) -> Any:
            return torch.from_numpy(encoder.embed_tokens(tokens.rows))

    class Tokens:
        def __init__(self, texts: list[str]) -> None:
            self.rows = encoder.preparation.encode(texts)

        def to(self, _: Any) -> "Tokens":
            return self

    stub: Any = types.ModuleType("all_clip")
    stub.load_clip = lambda *_, **__: (Model(), None, Tokens)
    sys.modules["all_clip"] = stub
    # Its package imports all that makes datasets too: wandb, webdataset, img2dataset …
    found = importlib.util.find_spec("clip_retrieval")
    package: Any = types.ModuleType("clip_retrieval")
    package.__path__ = list(found.submodule_search_locations or []) if found else []
    sys.modules["clip_retrieval"] = package
    from clip_retrieval.clip_back import clip_back as run

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    paths = folder / "indices.json"
    paths.write_text(json.dumps({"it": str(folder)}))
    _end_with_input()
    run(
        indices_paths=str(paths),
        port=asked["port"],
        columns_to_return=asked["columns"],
        enable_mclip_option=False,
        provide_aesthetic_embeddings=False,
    )


def _wait() -> None:
    sys.stdin.read()


def _end_with_input() -> None:
    def wait() -> None:
        _wait()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    kind, text = sys.argv[1:]
    {"serve": on_serve, "app": app, "plain": plain, "clip_back": clip_back}[kind](json.loads(text))
