"""Statistics on few, dear, noisy samples: exact tests, sequential stopping, change points. Pure functions of numbers."""
