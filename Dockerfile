# One image for every process; docker-compose.yml says which one a container is.
# Wheels in build/wheels (`make wheels`, on a machine with the image's Python) are taken and nothing is fetched; without
# them the packages of the lock file come from the index. Their hashes are checked either way.
ARG BASE=python:3.12-slim
FROM ${BASE}

COPY requirements.lock pyproject.toml README.md LICENSE build/wheel[s] /install/
COPY services /install/src/services
COPY matrixcommon /install/src/matrixcommon
COPY matrixresource /install/src/matrixresource
COPY matrixlink /install/src/matrixlink
COPY matrixcompute /install/src/matrixcompute
COPY matrixcontainer /install/src/matrixcontainer
COPY infer_workload /install/src/infer_workload
RUN set -e; \
    python3 -m venv /opt/cloudmatrix; \
    cd /install; \
    pip="/opt/cloudmatrix/bin/pip --quiet --no-cache-dir --disable-pip-version-check"; \
    { ls *.whl >/dev/null 2>&1 && $pip install --no-index --find-links . --require-hashes -r requirements.lock; } \
      || $pip install --require-hashes -r requirements.lock; \
    cp pyproject.toml README.md LICENSE src/; \
    $pip install --no-deps --no-build-isolation ./src; \
    rm -rf /install

ENV PATH=/opt/cloudmatrix/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MALLOC_ARENA_MAX=2
RUN mkdir -m 700 /state && chown 10001:10001 /state
WORKDIR /state
USER 10001:10001
ENTRYPOINT ["python", "-m", "services.matrixctl.supervisor.container_entrypoint"]
