"""Columns that several kinds of tables share."""

from __future__ import annotations

from statistics import median

from experiments.engine import statistics
from experiments.engine.cells import Column, interval, spread

CALLS = Column("target calls", lambda row, document: "" if row.get("alone") else f"{row['calls_per_image']:.1f}")
REDUCTION = Column("tokens per call", lambda row, document: interval(row["step_reduction"]))
SPEED = Column("speed", lambda row, document: spread(statistics.wall_ratio(row)))
SECONDS = Column("seconds an image", lambda row, document: f"{median(row['wall']['own']):.2f}" if row["wall"] else "")
TAU = lambda row, document: f"{t:.4g}" if (t := row["options"].get("tau")) is not None and 0 < t < 1e29 else ""
