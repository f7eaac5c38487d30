from infer_workload.serving.store import Base
from services.chassis.migrating import run

run(Base.metadata)
