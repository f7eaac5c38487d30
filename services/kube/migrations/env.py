from matrixcontainer.kubeapi.tables import metadata
from services.chassis.migrating import run

run(metadata)
