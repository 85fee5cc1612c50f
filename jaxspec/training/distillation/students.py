"""The kinds of drafters that can be trained on a target, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxspec.training.distillation.block_head_student import BlockHeadSettings, block_head_student
from jaxspec.training.distillation.draft_student import DraftSettings, draft_student
from jaxspec.training.distillation.eagle_student import EagleSettings, eagle_student
from jaxspec.training.distillation.inter_head_student import InterHeadSettings, inter_head_student
from jaxspec.training.distillation.spatial_student import SpatialSettings, spatial_student
from jaxspec.training.distillation.student import Student


class StudentKind(NamedTuple):
  """One kind.

  Attributes:
    settings: class of its settings, a `jaxspec.training.distillation.student.DistillationSettings` with a function ``check``
      of the target.
    make_student: ``(pipeline, settings) -> Student``.
    method: name of a method that drafts with it.
  """

  settings: type[Any]
  make_student: Callable[[Any, Any], Student]
  method: str


STUDENTS: dict[str, StudentKind] = {
  "eagle": StudentKind(EagleSettings, eagle_student, "eagle-chain"),
  "block-head": StudentKind(BlockHeadSettings, block_head_student, "block-head"),
  "spatial": StudentKind(SpatialSettings, spatial_student, "spatial"),
  "draft": StudentKind(DraftSettings, draft_student, "speculative"),
  "inter-head": StudentKind(InterHeadSettings, inter_head_student, "ciar"),
}
