"""What every session on PostgreSQL is opened with, so that no replica can hold up the others for ever.

Who writes holds the lock that all writers take (a row: of the journal, of the revision counter) until it commits. A
process that is stopped just then, by a signal or with the machine that it runs on, keeps that lock, and no keepalive
tells: its connection is alive. The server ends such a transaction, and who waits is refused and asks again later.
"""

LOCK_PATIENCE_WALL_S = 5
"""How long a writer waits for the one before; a decision and its commit take milliseconds."""
PAUSE_PATIENCE_WALL_S = 10
"""How long a transaction may stand still between two statements before the server ends it."""


def session_options() -> str:
    """libpq's `options` for a new connection."""
    patience = {"lock_timeout": LOCK_PATIENCE_WALL_S, "idle_in_transaction_session_timeout": PAUSE_PATIENCE_WALL_S}
    return " ".join(f"-c {name}={patience_s}s" for name, patience_s in patience.items())


WITHOUT_LIMITS = "SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"
"""For a transaction that may take its time, as a migration does: until its end."""
