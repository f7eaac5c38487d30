CREATE TABLE agents (
  node VARCHAR(63) NOT NULL,
  epoch BIGINT NOT NULL,
  PRIMARY KEY (node)
);
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
CREATE TABLE communicators (
  slice VARCHAR(253) NOT NULL,
  pattern VARCHAR(16) NOT NULL,
  routing VARCHAR(16) NOT NULL,
  ranks JSON,
  offered_gbps FLOAT,
  shift INTEGER,
  holders INTEGER,
  seed INTEGER NOT NULL,
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
CREATE INDEX ix_communicators_slice ON communicators (slice);
CREATE TABLE drains (
  elements JSON NOT NULL,
  ports JSON NOT NULL,
  reason VARCHAR(300) NOT NULL,
  even_if_floors_break BOOLEAN NOT NULL,
  waiting_for INTEGER NOT NULL,
  message VARCHAR(300) NOT NULL,
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
CREATE TABLE events (
  about VARCHAR(253) NOT NULL,
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
CREATE INDEX ix_events_about ON events (about);
CREATE INDEX ix_events_at ON events (at);
CREATE TABLE fences (
  slice VARCHAR(253) NOT NULL,
  node VARCHAR(63) NOT NULL,
  generation INTEGER NOT NULL,
  isolation VARCHAR(16) NOT NULL,
  isolation_key INTEGER NOT NULL,
  PRIMARY KEY (slice, node)
);
CREATE TABLE journal_head (
  id INTEGER NOT NULL,
  rv BIGINT NOT NULL,
  floor BIGINT NOT NULL,
  PRIMARY KEY (id)
);
CREATE TABLE links (
  node VARCHAR(63) NOT NULL,
  port VARCHAR(40) NOT NULL,
  gbps FLOAT NOT NULL,
  built JSON NOT NULL,
  reported_gbps FLOAT,
  probed_gbps FLOAT,
  reason VARCHAR(40) DEFAULT '' NOT NULL,
  accused VARCHAR(80),
  penalty FLOAT DEFAULT '0' NOT NULL,
  penalty_at FLOAT DEFAULT '0' NOT NULL,
  damped_until FLOAT,
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
CREATE INDEX ix_links_node ON links (node);
CREATE TABLE peerings (
  slices JSON NOT NULL,
  plane VARCHAR(8) NOT NULL,
  isolation VARCHAR(16) NOT NULL,
  isolation_key INTEGER NOT NULL,
  accepted_by JSON NOT NULL,
  security_rules JSON NOT NULL,
  message VARCHAR(300) NOT NULL,
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
CREATE TABLE programs (
  slice VARCHAR(253) NOT NULL,
  node VARCHAR(63) NOT NULL,
  action VARCHAR(8) NOT NULL,
  body JSON NOT NULL,
  acknowledged INTEGER NOT NULL,
  message VARCHAR(300) NOT NULL,
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
CREATE INDEX ix_programs_node ON programs (node);
CREATE INDEX ix_programs_slice ON programs (slice);
CREATE TABLE slice_names (
  name VARCHAR(253) NOT NULL,
  generation INTEGER NOT NULL,
  PRIMARY KEY (name)
);
CREATE TABLE slices (
  allocation VARCHAR(253) NOT NULL,
  instance VARCHAR(253) NOT NULL,
  plane VARCHAR(8) NOT NULL,
  members JSON NOT NULL,
  qos_class VARCHAR(16) NOT NULL,
  floor_gbps FLOAT NOT NULL,
  ceiling_gbps FLOAT,
  weight FLOAT NOT NULL,
  latency_bound_us FLOAT,
  protection VARCHAR(16) NOT NULL,
  isolation VARCHAR(16) NOT NULL,
  isolation_key INTEGER NOT NULL,
  admitted_order BIGINT NOT NULL,
  kept FLOAT NOT NULL,
  unprotected VARCHAR(300) NOT NULL,
  security_rules JSON NOT NULL,
  program_generation INTEGER NOT NULL,
  programmed INTEGER NOT NULL,
  ports_seen JSON NOT NULL,
  fabric_view JSON NOT NULL,
  view_generation INTEGER NOT NULL,
  withdrawing_since FLOAT,
  name VARCHAR(253) NOT NULL,
  project VARCHAR(63) NOT NULL,
  labels JSON NOT NULL,
  generation INTEGER NOT NULL,
  version BIGINT NOT NULL,
  state VARCHAR(40) NOT NULL,
  conditions JSON NOT NULL,
  created_at FLOAT NOT NULL,
  updated_at FLOAT NOT NULL,
  PRIMARY KEY (name),
  UNIQUE (isolation, isolation_key)
);
CREATE INDEX ix_slices_allocation ON slices (allocation);
CREATE INDEX ix_slices_instance ON slices (instance);
CREATE TABLE wirings (
  supernode VARCHAR(63) NOT NULL,
  document JSON NOT NULL,
  PRIMARY KEY (supernode)
);
