"""Objects under one counter of revisions: durable before acknowledged, with history.

Never looks into an object beyond its metadata.
"""
