CREATE TABLE agent_leases (
  node VARCHAR(63) NOT NULL,
  epoch BIGINT NOT NULL,
  sequence BIGINT NOT NULL,
  heard_at FLOAT NOT NULL,
  lease_s FLOAT NOT NULL,
  PRIMARY KEY (node)
);
CREATE TABLE alembic_version (
  version_num VARCHAR(32) NOT NULL,
  CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE allocations (
  nodes INTEGER NOT NULL,
  spares INTEGER NOT NULL,
  npus FLOAT NOT NULL,
  request JSON NOT NULL,
  moving_to JSON,
  expires_at FLOAT,
  topology_version VARCHAR(200) NOT NULL,
  bound BOOLEAN NOT NULL,
  members JSON NOT NULL,
  preempts JSON NOT NULL,
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
CREATE TABLE assignments (
  desired_role VARCHAR(10) NOT NULL,
  allocation VARCHAR(127),
  rank INTEGER,
  parts JSON NOT NULL,
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
CREATE TABLE defragmentations (
  nodes INTEGER NOT NULL,
  level VARCHAR(12) NOT NULL,
  request JSON NOT NULL,
  moves JSON NOT NULL,
  room JSON NOT NULL,
  block_before INTEGER NOT NULL,
  block_after INTEGER NOT NULL,
  npus FLOAT NOT NULL,
  exact BOOLEAN NOT NULL,
  cancelling BOOLEAN NOT NULL,
  topology_version VARCHAR(200) NOT NULL,
  message TEXT NOT NULL,
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
CREATE TABLE domains (
  level VARCHAR(10) NOT NULL,
  supernode VARCHAR(63) NOT NULL,
  closed BOOLEAN NOT NULL,
  reason VARCHAR(200) NOT NULL,
  "by" VARCHAR(63) NOT NULL,
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
CREATE INDEX ix_domains_supernode ON domains (supernode);
CREATE TABLE fault_records (
  node VARCHAR(63) NOT NULL,
  component VARCHAR(40) NOT NULL,
  code VARCHAR(40) NOT NULL,
  times JSON NOT NULL,
  since FLOAT,
  gone_at FLOAT,
  separated_at FLOAT,
  prolonged BOOLEAN NOT NULL,
  PRIMARY KEY (node, component, code)
);
CREATE TABLE inventories (
  node VARCHAR(63) NOT NULL,
  reported_at FLOAT NOT NULL,
  found JSON NOT NULL,
  PRIMARY KEY (node)
);
CREATE TABLE journal_head (
  id INTEGER NOT NULL,
  rv BIGINT NOT NULL,
  floor BIGINT NOT NULL,
  PRIMARY KEY (id)
);
CREATE TABLE nodes (
  supernode VARCHAR(16) NOT NULL,
  npus INTEGER NOT NULL,
  cpus INTEGER NOT NULL,
  holder VARCHAR(127),
  role VARCHAR(10),
  rank INTEGER,
  shared_by INTEGER NOT NULL,
  cordoned BOOLEAN NOT NULL,
  domain_closed BOOLEAN NOT NULL,
  reserved_for_plan VARCHAR(253),
  power VARCHAR(10) NOT NULL,
  health VARCHAR(12) NOT NULL,
  agent VARCHAR(10) NOT NULL,
  epoch BIGINT NOT NULL,
  status VARCHAR(12),
  stage VARCHAR(40),
  observed_generation BIGINT NOT NULL,
  desired_role VARCHAR(10) NOT NULL,
  wanted_generation BIGINT NOT NULL,
  assignment_generation BIGINT NOT NULL,
  faults JSON NOT NULL,
  reported_partitions JSON NOT NULL,
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
CREATE INDEX ix_nodes_holder ON nodes (holder);
CREATE TABLE observed_ports (
  node VARCHAR(63) NOT NULL,
  supernode VARCHAR(63) NOT NULL,
  digest VARCHAR(64) NOT NULL,
  moving BOOLEAN NOT NULL,
  ports JSON NOT NULL,
  PRIMARY KEY (node)
);
CREATE INDEX ix_observed_ports_moving ON observed_ports (moving);
CREATE INDEX ix_observed_ports_supernode ON observed_ports (supernode);
CREATE TABLE parts (
  allocation VARCHAR(127) NOT NULL,
  node VARCHAR(253) NOT NULL,
  rank INTEGER,
  dies INTEGER NOT NULL,
  cpus INTEGER NOT NULL,
  memory_gib INTEGER NOT NULL,
  generation BIGINT NOT NULL,
  releasing BOOLEAN NOT NULL,
  PRIMARY KEY (allocation, node)
);
CREATE INDEX ix_parts_node ON parts (node);
CREATE TABLE quotas (
  limits JSON NOT NULL,
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
CREATE TABLE reservations (
  starts_at FLOAT NOT NULL,
  ends_at FLOAT NOT NULL,
  request JSON NOT NULL,
  place JSON NOT NULL,
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
CREATE TABLE supernodes (
  topology_version VARCHAR(120) NOT NULL,
  cabinets INTEGER NOT NULL,
  npus_per_node INTEGER NOT NULL,
  cpus_per_node INTEGER NOT NULL,
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
CREATE TABLE topology_head (
  id INTEGER NOT NULL,
  number INTEGER NOT NULL,
  name VARCHAR(63) NOT NULL,
  PRIMARY KEY (id)
);
CREATE TABLE topology_specs (
  fingerprint VARCHAR(12) NOT NULL,
  numbers TEXT NOT NULL,
  drawn TEXT NOT NULL,
  PRIMARY KEY (fingerprint)
);
CREATE TABLE topology_versions (
  number INTEGER NOT NULL,
  "by" VARCHAR(63) NOT NULL,
  changes JSON NOT NULL,
  topology JSON NOT NULL,
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
  UNIQUE (number)
);
