"""The reckoning's other side: the same files counted by a plain loop in one process, without any of Ringfence."""

from __future__ import annotations

import gc
import importlib.util
import posixpath
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ringfence.errors import RingfenceError
from ringfence.local.demo.sources import Source

COUNTING = Path("jobs", "module_counts.py")
"""Where, in the worker function's folder, the counting of one file is: the job's own, so that only the way differs."""

Row = Mapping[str, int]


class NoExampleJobs(RingfenceError):
    """The worker function does not hold the example jobs."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the tables must hold in the end, and which jobs must be dead."""

    modules: Mapping[str, Row]
    """Key → its counts."""
    totals: Mapping[str, Row]
    """Package → the sums of its modules' counts, and how many modules they are."""
    unparseable: Mapping[str, str]
    """Key → the parser's message."""


def expected_of(sources: Iterable[Source], worker_folder: Path) -> Expected:
    """Count every file with the function that the job ``index_module`` uses. Raises `NoExampleJobs`."""
    counting = _load(worker_folder / COUNTING)
    modules: dict[str, Row] = {}
    totals: dict[str, Counter[str]] = {}
    unparseable: dict[str, str] = {}
    # What this process has loaded is set aside, or the collector would walk through it for every few syntax trees.
    gc.freeze()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some Pythons tell of invalid escapes in what they parse
        for source in sources:
            try:
                counts = asdict(counting.count_module(source.data, posixpath.basename(source.key)))
            except counting.Unparseable as fault:
                unparseable[source.key] = str(fault)
                continue
            modules[source.key] = counts
            totals.setdefault(counting.package_of(source.key), Counter()).update({"modules": 1, **counts})
    gc.unfreeze()
    return Expected(modules, {package: dict(sums) for package, sums in totals.items()}, unparseable)


def _load(path: Path) -> Any:
    """A module by its file: the worker function's folder is not on this process's path."""
    name = f"ringfence_demo_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise NoExampleJobs(f"there is no {path}: the demo runs the example jobs of the repository")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their own module up
    spec.loader.exec_module(module)
    return module
