# One image for every process; docker-compose.yml says which one a container is.
# Wheels in build/wheels (`make wheels`, on a machine with the image's Python) are taken and nothing is fetched; without
# them the packages of the lock file come from the index. Their hashes are checked either way.
ARG BASE=python:3.12-slim
FROM ${BASE} AS build

COPY requirements.lock pyproject.toml README.md LICENSE build/wheel[s] /install/
RUN set -e; \
    python3 -m venv /opt/cloudmatrix; \
    cd /install; \
    pip="/opt/cloudmatrix/bin/pip --quiet --no-cache-dir --disable-pip-version-check"; \
    { ls *.whl >/dev/null 2>&1 && $pip install --no-compile --no-index --find-links . --require-hashes -r requirements.lock; } \
      || $pip install --no-compile --require-hashes -r requirements.lock

COPY services /install/src/services
COPY matrixcommon /install/src/matrixcommon
COPY matrixresource /install/src/matrixresource
COPY matrixlink /install/src/matrixlink
COPY matrixcompute /install/src/matrixcompute
COPY matrixcontainer /install/src/matrixcontainer
COPY infer_workload /install/src/infer_workload
COPY examples/*.yaml /install/src/examples/
# What installs, tests and compiles packages is not needed to run them. The bytecode is: a container's file system is
# read-only, and compiling at every start takes seconds.
RUN set -e; \
    cd /install; \
    cp pyproject.toml README.md LICENSE src/; \
    /opt/cloudmatrix/bin/pip --quiet --no-cache-dir --disable-pip-version-check install --no-compile --no-deps \
      --no-build-isolation ./src; \
    cd /opt/cloudmatrix/lib/python3*/site-packages; \
    rm -rf pip pip-* setuptools setuptools-* _distutils_hack distutils-precedence.pth; \
    find . -type d \( -name tests -o -name test \) -prune -exec rm -rf {} +; \
    find . \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.h' -o -name '*.a' \) -delete; \
    /opt/cloudmatrix/bin/python -m compileall -q -j 0 .

FROM ${BASE}
COPY --from=build /opt/cloudmatrix /opt/cloudmatrix

ENV PATH=/opt/cloudmatrix/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MALLOC_ARENA_MAX=2
RUN mkdir -m 700 /state && chown 10001:10001 /state
WORKDIR /state
USER 10001:10001
ENTRYPOINT ["python", "-m", "services.matrixctl.supervisor.container_entrypoint"]
