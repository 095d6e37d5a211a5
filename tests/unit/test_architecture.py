"""The core is every flat module but the composition root: none may be forgotten by the contract that keeps adapters out."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "layers/ringfence/python/ringfence"


def test_every_flat_module_is_kept_free_of_adapters() -> None:
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    kept = {name for contract in configured for name in contract["source_modules"]}
    flat = {f"ringfence.{path.stem}" for path in PACKAGE.glob("*.py")} - {"ringfence.__init__", "ringfence.runtime"}
    assert flat <= kept
