"""The history of a series: its runs in the order of time, where its level changed, and who has acknowledged that."""
