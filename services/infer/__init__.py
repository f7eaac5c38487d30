"""CloudMatrix-Infer as a process."""
