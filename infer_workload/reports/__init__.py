"""Reports of experiments: values, text, HTML pages, plots and CSV. Nothing is measured here."""
