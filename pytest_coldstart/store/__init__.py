"""The store: JSON lines, one immutable file a process, are the truth; DuckDB answers questions about them."""
