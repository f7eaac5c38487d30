#!/bin/sh
# POSTGRES_USER, POSTGRES_PASSWORD_FILE, /docker-entrypoint-initdb.d/*.sql at the first start, data in /var/lib/postgresql/data.
set -e
bin=$(echo /usr/lib/postgresql/*/bin)
data=/var/lib/postgresql/data
mkdir -p "$data" /run/postgresql
chown -R postgres:postgres "$data" /run/postgresql
chmod 700 "$data"
as() { runuser -u postgres -- "$@"; }
if [ ! -s "$data/PG_VERSION" ]; then
  as "$bin/initdb" -D "$data" -U "$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" -A scram-sha-256 --auth-local=trust -E UTF8
  echo "host all all all scram-sha-256" >> "$data/pg_hba.conf"
  as "$bin/pg_ctl" -D "$data" -o "-c listen_addresses=''" -w start
  as "$bin/createdb" -U "$POSTGRES_USER" "$POSTGRES_USER"
  for file in /docker-entrypoint-initdb.d/*.sql; do as "$bin/psql" -U "$POSTGRES_USER" -v ON_ERROR_STOP=1 -f "$file"; done
  as "$bin/pg_ctl" -D "$data" -w stop
fi
exec runuser -u postgres -- "$bin/postgres" -D "$data" -c listen_addresses='*'
