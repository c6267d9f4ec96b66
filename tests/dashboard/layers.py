"""A chart as data: its layers with their rows."""

from __future__ import annotations

from typing import Any


def layers(chart: Any) -> list[dict[str, Any]]:
    """The layers of *chart*, each with its rows in ``rows``, wherever the specification keeps them."""
    spec = chart.to_dict()
    kept = spec.get("datasets", {})

    def rows(part: dict[str, Any]) -> list[dict[str, Any]]:
        data = part.get("data", spec.get("data", {}))
        return list(data.get("values") or kept.get(data.get("name"), ()))

    return [{**part, "rows": rows(part)} for part in spec["layer"]]


def coloured(chart: Any) -> dict[str, Any]:
    """The layer whose marks have colours."""
    return next(part for part in layers(chart) if "color" in part["encoding"])
