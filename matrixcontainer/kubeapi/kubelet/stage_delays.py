"""Stage delays of emulated kubelets, read from pod_stages.yaml."""

import random
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class StageDelays:
    """Seconds before each stage. `delay` derives the jitter from `seed`, so it is the same for the same pod."""

    stages: dict[str, tuple[float, float]]

    def delay(self, stage: str, seed: str) -> float:
        seconds, jitter = self.stages[stage]
        if not jitter:
            return seconds
        return max(seconds + random.Random(f"{stage} {seed}").uniform(-jitter, jitter), 0.0)

    def back_off(self, restarts: int) -> float:
        """Back-off in seconds after a container's crash number `restarts` + 1."""
        return float(min(self.stages["restart"][0] * 2 ** min(restarts, 20), self.stages["restart_max"][0]))


def load_stage_delays() -> StageDelays:
    import yaml

    stages = yaml.load(files(__package__).joinpath("pod_stages.yaml").read_text(), yaml.CSafeLoader)
    return StageDelays(
        {stage: (float(stages[stage]["delay_s"]), float(stages[stage].get("jitter_s", 0.0))) for stage in stages}
    )
