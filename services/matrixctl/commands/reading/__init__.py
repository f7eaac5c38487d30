"""Commands that only show what the services tell."""
