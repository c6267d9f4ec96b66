"""The KV cache of an engine: its geometry and use, one module an engine."""

from pytest_coldstart.kv.base import KVReader

__all__ = ["KVReader"]
