"""The dashboard: what the store holds, on pages. It only reads; nothing of pytest_coldstart imports it."""
