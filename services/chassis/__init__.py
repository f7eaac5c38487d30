"""What every process stands on: settings, logging, database, HTTP in and out, watchers."""
