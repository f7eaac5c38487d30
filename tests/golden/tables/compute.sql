CREATE TABLE alembic_version (
  version_num VARCHAR(32) NOT NULL,
  CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE changes (
  rv BIGINT NOT NULL,
  kind VARCHAR(40) NOT NULL,
  name VARCHAR(253) NOT NULL,
  type VARCHAR(10) NOT NULL,
  at FLOAT NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (rv)
);
CREATE INDEX ix_changes_kind ON changes (kind);
CREATE TABLE events (
  instance VARCHAR(127) NOT NULL,
  type VARCHAR(10) NOT NULL,
  reason VARCHAR(60) NOT NULL,
  message TEXT NOT NULL,
  at FLOAT NOT NULL,
  name VARCHAR(253) NOT NULL,
  project VARCHAR(63) NOT NULL,
  labels JSON NOT NULL,
  generation INTEGER NOT NULL,
  version BIGINT NOT NULL,
  state VARCHAR(40) NOT NULL,
  conditions JSON NOT NULL,
  created_at FLOAT NOT NULL,
  updated_at FLOAT NOT NULL,
  PRIMARY KEY (name)
);
CREATE INDEX ix_events_at ON events (at);
CREATE INDEX ix_events_instance ON events (instance);
CREATE TABLE instances (
  spec JSON NOT NULL,
  applied JSON,
  observed_generation INTEGER NOT NULL,
  operation VARCHAR(253),
  members JSON NOT NULL,
  slices JSON NOT NULL,
  ready_nodes INTEGER NOT NULL,
  repairs INTEGER NOT NULL,
  retry_at FLOAT NOT NULL,
  leaving JSON,
  expires_at FLOAT,
  name VARCHAR(253) NOT NULL,
  project VARCHAR(63) NOT NULL,
  labels JSON NOT NULL,
  generation INTEGER NOT NULL,
  version BIGINT NOT NULL,
  state VARCHAR(40) NOT NULL,
  conditions JSON NOT NULL,
  created_at FLOAT NOT NULL,
  updated_at FLOAT NOT NULL,
  PRIMARY KEY (name)
);
CREATE TABLE journal_head (
  id INTEGER NOT NULL,
  rv BIGINT NOT NULL,
  floor BIGINT NOT NULL,
  PRIMARY KEY (id)
);
CREATE TABLE operations (
  verb VARCHAR(40) NOT NULL,
  target VARCHAR(127) NOT NULL,
  status VARCHAR(12) NOT NULL,
  step INTEGER NOT NULL,
  steps JSON NOT NULL,
  message TEXT NOT NULL,
  error JSON,
  spec_generation INTEGER NOT NULL,
  shape JSON NOT NULL,
  parameters JSON,
  finished_at FLOAT,
  name VARCHAR(253) NOT NULL,
  project VARCHAR(63) NOT NULL,
  labels JSON NOT NULL,
  generation INTEGER NOT NULL,
  version BIGINT NOT NULL,
  state VARCHAR(40) NOT NULL,
  conditions JSON NOT NULL,
  created_at FLOAT NOT NULL,
  updated_at FLOAT NOT NULL,
  PRIMARY KEY (name)
);
CREATE INDEX ix_operations_status ON operations (status);
CREATE INDEX ix_operations_target ON operations (target);
