"""The jobs of this deployment: one file each, registered by name. Put yours beside them and import it here.

The worker finds them as ``RINGFENCE_APP=jobs:app``.
"""

from jobs import charge, index_module, signup
from jobs.registry import app

__all__ = ["app", "charge", "index_module", "signup"]
