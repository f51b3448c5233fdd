"""Find methods that other installed packages add by an entry point, so that none has to be written into this package.

A package states `[project.entry-points."evaluator.methods"]` with lines `name = "module:METHOD"`, where METHOD is a
methods.base.Method.
"""

import importlib
import importlib.metadata
import inspect
import logging
from collections.abc import Collection
from typing import NamedTuple

from evaluator.files.digests import code_digest
from evaluator.methods.base import Method

logger = logging.getLogger(__name__)

GROUP = "evaluator.methods"


class PlugIn(NamedTuple):
    """A method of another package."""

    method: Method
    identity: str  # changes with the code of its module: part of what identifies prompts


def plug_ins(taken: Collection[str]) -> dict[str, PlugIn]:
    """Return the methods of other packages by name, sorted.

    An entry point that cannot be loaded, is no Method or has a name that is taken is left out with a warning: it must
    not end runs that do not use it.
    """
    found: dict[str, PlugIn] = {}
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        try:
            method = entry.load()
            if not isinstance(method, Method) or entry.name in {*taken, *found}:
                raise TypeError("its name is taken" if isinstance(method, Method) else f"{method!r:.60} is no Method")
            found[entry.name] = PlugIn(method, code_digest(inspect.getsource(importlib.import_module(entry.module))))
        except Exception as error:  # any code of others
            logger.warning("The method %s (%s) is left out: %s.", entry.name, entry.value, error)
    return found
