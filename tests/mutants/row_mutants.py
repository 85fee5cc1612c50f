"""Errors of windows of several rows of an image, and the tests that find them."""

from tests.mutants.mutant import Mutant

_ROWS = "jaxspec/methods/row_decode.py"


def row_windows(*cases: str) -> tuple[str, ...]:
  return tuple(f"tests/methods/test_row_windows.py::test_every_outcome_of_windows[{case}]" for case in cases)


ROWS = (
  Mutant(
    "drafts of a row are seen by the rows below",
    _ROWS,
    "above = (group[None] < group[:, None]) & (offset[None] == 0)",
    "above = group[None] < group[:, None]",
    row_windows("1-1"),
  ),
  Mutant(
    "a rejected place is tried again, as published",
    _ROWS,
    "num_next = jnp.minimum(1, room - verdict.num_accepted)",
    "num_next = jnp.where(ended_by_rejection(draft, verdict), 0, jnp.minimum(1, room - verdict.num_accepted))",
    row_windows("1-2"),
  ),
  Mutant(
    "drafts are kept above half of the ratio, as published",
    _ROWS,
    "rule = audited(lossless) if self.audit else lossless",
    "from jaxspec.rules.lossless import commit_leading, log_ratio\n"
    "    ratio = lambda draft, target: log_ratio(draft.tokens, target[:, :-1], draft.proposal)\n"
    "    rule = lambda tables, keys, draft, target: commit_leading(\n"
    "      keys, draft, target, accept_prob=(ratio(draft, target) > jnp.log(0.5)).astype(jnp.float32)\n"
    "    )",
    row_windows("3-2"),
  ),
  Mutant(
    "a row may pass the row above",
    "jaxspec/sampling/row_schedule.py",
    "limit = jnp.where(above == columns, columns, jnp.maximum(above - width + 1, 0))",
    "limit = jnp.where(above >= width, columns, 0)",
    ("tests/methods/test_rows.py::test_rows_that_advance_by_several_tokens[grid4-3]",),
  ),
  Mutant(
    "windows stay with their group when the first row ends",
    "jaxspec/drafters/row_windows.py",
    "source = (progress.first - read.row[:, 0])[:, None] + jnp.arange(groups)[None]",
    "source = 0 * (progress.first - read.row[:, 0])[:, None] + jnp.arange(groups)[None]",
    ("tests/methods/test_row_windows.py::test_windows_move_with_their_rows",),
  ),
)
