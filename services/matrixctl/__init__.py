"""The command line, and the supervisor that keeps a stack of processes running."""
