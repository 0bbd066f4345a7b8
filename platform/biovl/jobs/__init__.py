"""The Ray layer: one module per script of ``pipelines/``. The only modules that import ray."""
