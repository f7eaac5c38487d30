"""The common base of every process: settings, logging, database, HTTP server and client, watchers."""
