"""The demos: named steps, each with a check of its outcome."""
