from matrixcontainer.kubeapi.storage.tables import metadata
from services.chassis.migrating import run

run(metadata)
