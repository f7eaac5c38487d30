"""SQLAlchemy definitions of the store's tables, for migrations only: the store itself uses the drivers directly."""

from sqlalchemy import BigInteger, Column, Float, LargeBinary, MetaData, String, Table, Text

metadata = MetaData()
objects = Table(
    "kube_objects",
    metadata,
    Column("resource", String(320), primary_key=True),
    Column("namespace", String(63), primary_key=True),
    Column("name", String(253), primary_key=True),
    Column("uid", String(36), nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
changes = Table(
    "kube_changes",
    metadata,
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("type", String(8), nullable=False),
    Column("resource", String(320), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("name", String(253), nullable=False),
    Column("uid", String(36), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("previous", LargeBinary),
    Column("at", Float, nullable=False),
)
counters = Table(
    "kube_counters", metadata, Column("name", String(32), primary_key=True), Column("value", BigInteger, nullable=False)
)
identity = Table(
    "kube_identity", metadata, Column("name", String(64), primary_key=True), Column("value", Text, nullable=False)
)
