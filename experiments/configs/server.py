"""What is shown of the server and of the link to it; sizes are fields, so that every table can be tried small first."""

from __future__ import annotations

from experiments.engine.link import PROMPTS
from experiments.engine.rows import row
from experiments.server.cut_calls import CutCalls
from experiments.server.decodes import Case
from experiments.server.faults import Faults
from experiments.server.hostile import Hostile
from experiments.server.recovery import Recovery

CAPTIONS = ("a red heart", "two cats", "a green apple", "a blue car", "a yellow star", "a house", "a tree", "a fish")


def sqs(coding: str, tokens: int) -> Case:
  """The shipped language pair, without end tokens."""
  options = dict(coding=coding, sparsifier="topk", support=32, max_drafts=6)
  return Case("wordnet", row("sqs", f"sqs, {coding}", **options), PROMPTS, tokens, max_prompt=16)


CIAR = Case("emoji64", row("ciar", "ciar", draft="inter-2", gamma=3, cloud_rate=0.5), CAPTIONS, 256)
EVERY_FAULT = "Decodes under every single fault, and under several at once"

TABLES = {
  "faults_lazy": Faults(title=f"{EVERY_FAULT}: sqs, coding lazy", case=sqs("lazy", 90)),
  "faults_trimmed": Faults(title=f"{EVERY_FAULT}: sqs, coding trimmed", case=sqs("trimmed", 130)),
  "faults_ciar": Faults(title=f"{EVERY_FAULT}: ciar", case=CIAR),
  "recovery": Recovery(title="How long a decode stands still", cases=(sqs("lazy", 90), sqs("trimmed", 130))),
  "hostile": Hostile(title="A server under hostile inputs", case=sqs("lazy", 90)),
  "cut_calls": CutCalls(title="Memory over calls that are cut by their deadline", case=sqs("trimmed", 130)),
}
