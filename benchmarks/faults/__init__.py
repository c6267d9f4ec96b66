"""Faults of real engines, provoked through the product as a user meets them; see benchmarks/engine_faults.py."""
