"""From stack samples of an engine's processes to one critical path."""
