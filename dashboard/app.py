"""The dashboard's entry: ``coldstart dashboard``, or ``streamlit run dashboard/app.py [-- --store DIR | --demo]``."""

from __future__ import annotations

import sys
from pathlib import Path

# Streamlit puts this folder on the path, not the one it lies in. In a checkout and in an installed wheel
# alike this folder is the package `dashboard`.
_PARENT = str(Path(__file__).resolve().parent.parent)
if _PARENT not in sys.path:
    sys.path.insert(0, _PARENT)

from dashboard import frame  # noqa: E402

frame.show()
