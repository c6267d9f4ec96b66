"""The plugin from outside: real pytest runs in processes of their own."""
