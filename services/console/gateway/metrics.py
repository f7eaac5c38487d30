"""What the console tells Prometheus of its live stream."""

from __future__ import annotations

from matrixcommon.telemetry.metric import Metric

STREAMS = Metric("console_streams", "gauge", "browsers", "Browsers that read the live stream.")
FRAMES = Metric("console_frames_total", "counter", "frames", "Frames encoded since the start.")
SKIPPED = Metric("console_frames_skipped_total", "counter", "frames", "Frames that slow readers never got.")
METRICS = (STREAMS, FRAMES, SKIPPED)
