"""An engine's own virtual environment, made from pinned requirements that come with the package."""

from pytest_coldstart.environments.build import EnvironmentFailed, make
from pytest_coldstart.environments.requirements import Requirements, RequirementsError, own, pinned, shipped

__all__ = ["EnvironmentFailed", "Requirements", "RequirementsError", "make", "own", "pinned", "shipped"]
