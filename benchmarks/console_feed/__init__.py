"""A program that stands for the services behind a console, for the benchmark of that name."""
