"""Metrics of the console's live stream."""

from __future__ import annotations

from matrixcommon.telemetry.metric import Metric

STREAMS = Metric("console_streams", "gauge", "browsers", "Browsers reading the live stream.")
FRAMES = Metric("console_frames_total", "counter", "frames", "Frames encoded since the start.")
SKIPPED = Metric("console_frames_skipped_total", "counter", "frames", "Frames skipped for slow readers.")
METRICS = (STREAMS, FRAMES, SKIPPED)
