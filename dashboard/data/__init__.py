"""What pages show, as plain data. All SQL of the dashboard is here; no Streamlit.

Each function takes a connection first and asks as little as its page shows: a store may hold a hundred thousand boots.
"""
