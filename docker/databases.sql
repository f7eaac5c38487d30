-- One database per service; the official PostgreSQL image runs this once, when its volume is new.
CREATE DATABASE resource;
CREATE DATABASE link;
CREATE DATABASE compute;
CREATE DATABASE infer;
CREATE DATABASE kube;
