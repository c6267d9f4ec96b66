"""Delays put into real engines, and whether a boot's critical path finds them."""
