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
CREATE TABLE deployments (
  request JSON NOT NULL,
  endpoint VARCHAR(200) NOT NULL,
  fabric_generation BIGINT NOT NULL,
  pools JSON NOT NULL,
  roles JSON NOT NULL,
  load JSON,
  drain JSON,
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
CREATE TABLE usage (
  project VARCHAR(63) NOT NULL,
  "key" VARCHAR(63) NOT NULL,
  deployment VARCHAR(127) NOT NULL,
  requests BIGINT NOT NULL,
  prompt_tokens BIGINT NOT NULL,
  cached_tokens BIGINT NOT NULL,
  completion_tokens BIGINT NOT NULL,
  version INTEGER NOT NULL,
  PRIMARY KEY (project, "key", deployment)
);
