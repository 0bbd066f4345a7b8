"""Functions whose modules are imported when they are called.

So ``--help`` and errors in settings do not wait for the import of Ray and PyTorch (seconds).
"""

import functools
import pkgutil
from collections.abc import Callable
from typing import Any


def function(name: str) -> Callable[..., Any]:
    """Return a function that imports another one and calls it.

    Args:
        name: ``module:function``.
    """
    return functools.partial(_call, name)


def _call(name: str, *arguments: Any, **named: Any) -> Any:
    return pkgutil.resolve_name(name)(*arguments, **named)
