"""Random-weight models of a chosen geometry: real bytes to load without a download.

Everything here is the standard library alone, so that the same geometry is the same bytes on
every machine, whatever is installed there.
"""

from pytest_coldstart.random_model.folder import make, make_at, models_home
from pytest_coldstart.random_model.geometry import PRESETS, Geometry, named

__all__ = ["PRESETS", "Geometry", "make", "make_at", "models_home", "named"]
