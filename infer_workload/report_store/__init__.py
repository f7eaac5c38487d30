"""Stored reports of experiments: by project, limited in number and size, and compared with one another."""
