"""Finding the user's `App`: the only import by name, and the name comes from the deployment."""

from __future__ import annotations

import importlib
import os

from ringfence.app import App
from ringfence.places import users_place
from ringfence.settings import Misconfigured


def load_app(where: str | None) -> App:
    """The app at ``module:attribute``. Raises `Misconfigured` with file and line when its modules cannot be imported."""
    module_name, _, attribute = (where or "").partition(":")
    if not module_name or not attribute:
        raise Misconfigured(f"RINGFENCE_APP is not module:attribute: {where!r}")
    try:
        module = importlib.import_module(module_name)
    except Exception as fault:
        place = users_place(fault)
        at = f"{place}: " if place else ""
        told = f"RINGFENCE_APP={where} cannot be imported: {at}{type(fault).__name__}: {fault}"
        if isinstance(fault, ModuleNotFoundError) and fault.name == module_name.partition(".")[0]:
            told += f"; it was looked for from {os.getcwd()}: start in the folder that holds {fault.name}"
        raise Misconfigured(told) from fault
    app = getattr(module, attribute, None)
    if app is None:
        raise Misconfigured(f"RINGFENCE_APP={where}: {module.__file__ or module_name} has no {attribute}")
    if not isinstance(app, App):
        raise Misconfigured(f"RINGFENCE_APP={where} is a {type(app).__name__}, not an App")
    return app
