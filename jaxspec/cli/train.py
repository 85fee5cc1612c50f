"""``jaxspec train``: trains what drafts for a target, or runs a training script."""

from __future__ import annotations

import click

from jaxspec.cli.lazy import LazyCommand, LazyGroup

COMMANDS = {
  "eagle": LazyCommand("jaxspec.cli.train_drafter:eagle", "An EAGLE head on the features of a target."),
  "block-head": LazyCommand("jaxspec.cli.train_drafter:block_head", "A head that drafts a block in one pass."),
  "spatial": LazyCommand("jaxspec.cli.train_drafter:spatial", "Heads that draft to the right and downward in an image."),
  "draft": LazyCommand("jaxspec.cli.train_drafter:draft", "A draft network of the first layers of a target."),
  "inter-head": LazyCommand("jaxspec.cli.train_drafter:inter_head", "An edge network with an Inter-Head, for method ciar."),
  "script": LazyCommand("jaxspec.cli.train_script:script", "A training that a Python file defines."),
}


@click.group(cls=LazyGroup, lazy_commands=COMMANDS)
def train() -> None:
  """Train heads and drafts of a target on rows that it draws itself, or run a training script."""
