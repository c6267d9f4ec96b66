"""The cold start of LLM serving engines, measured, explained and judged under pytest."""

__version__ = "0.1.0"
