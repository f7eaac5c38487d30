"""Manifests made for Volcano, MindCluster or CCE, rewritten to what this project's scheduler places."""
