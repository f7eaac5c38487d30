"""Reports of experiments that are kept: by project, within bounds, and compared with one another."""
