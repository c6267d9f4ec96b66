"""The gate: boots of a base and of a head, compared cell by cell until it is decided which one starts faster."""
