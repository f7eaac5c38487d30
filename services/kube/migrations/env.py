from matrixcontainer.kubeapi.store import metadata
from services.chassis.migrating import run

run(metadata)
