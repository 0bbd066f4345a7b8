"""Tests of benchmarks put ``benchmarks/`` on the path, where a script has our package's name."""

import serve  # noqa: F401  # now, so that benchmarks/serve.py is never taken for it
