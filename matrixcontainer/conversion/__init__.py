"""Conversion of manifests written for Volcano, MindCluster or CCE to what this project's scheduler places."""
