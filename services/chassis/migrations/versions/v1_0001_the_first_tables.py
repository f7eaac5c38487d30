"""The tables of every service as they were first declared: where its revisions begin.

A database is created with the tables of its day (services/chassis/database.py), so there is nothing to do.
"""

revision = "v1_0001"
down_revision = None


def upgrade() -> None:
    pass
