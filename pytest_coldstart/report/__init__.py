"""What people and CI read: terminal, failures, JUnit."""
