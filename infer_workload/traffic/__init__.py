"""Request traces and request generators."""
