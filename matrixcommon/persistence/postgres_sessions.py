"""Settings of every PostgreSQL session, so that no replica can block the others for ever.

A writer holds the lock that all writers take (a row of the journal or of the revision counter) until it commits. A
process that is stopped at that point, by a signal or with its machine, keeps the lock, and keepalives do not detect it:
the connection is alive. The server therefore ends such a transaction; a writer that waits too long is refused and
retries later.
"""

LOCK_TIMEOUT_WALL_S = 5
"""How long a writer waits for the lock; a decision and its commit take milliseconds."""
IDLE_TRANSACTION_TIMEOUT_WALL_S = 10
"""How long a transaction may be idle between two statements before the server ends it."""


def session_options() -> str:
    """libpq's `options` for a new connection."""
    patience = {
        "lock_timeout": LOCK_TIMEOUT_WALL_S,
        "idle_in_transaction_session_timeout": IDLE_TRANSACTION_TIMEOUT_WALL_S,
    }
    return " ".join(f"-c {name}={patience_s}s" for name, patience_s in patience.items())


LIFT_TIMEOUTS = "SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"
"""Lifts both limits for the rest of a transaction that may take long, such as a migration."""
