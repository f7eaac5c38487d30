"""The stories there are, by name."""

from __future__ import annotations

from services.matrixctl.demo.autoscale import AUTOSCALE
from services.matrixctl.demo.steps import FAILOVER
from services.matrixctl.demo.telling import Story

STORIES: dict[str, Story] = {story.name: story for story in (FAILOVER, AUTOSCALE)}
