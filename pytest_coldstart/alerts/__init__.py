"""Alerts: rules in a file, which of them fire by what the store holds, and telling somebody once."""
