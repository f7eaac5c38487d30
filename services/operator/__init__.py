"""The Kopf operator as a process."""
