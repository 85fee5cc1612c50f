"""Tables of the server and the link; sizes are fields, so that every table can first be run at a small size."""

from __future__ import annotations

import itertools

from experiments.engine.link import PROMPTS
from experiments.engine.rows import CLOSED, OPEN, Row, row
from experiments.server.ahead import Ahead
from experiments.server.crowd import Crowd
from experiments.server.cut_calls import CutCalls
from experiments.server.decodes import Case
from experiments.server.faults import Faults
from experiments.server.hostile import Hostile
from experiments.server.networks import SLOW, Networks
from experiments.server.overhead import Overhead
from experiments.server.recovery import Recovery
from jaxspec.serving.wire.link_model import NETWORKS

BEGINNINGS = PROMPTS[:8]
CAPTIONS = ("a red heart", "two cats", "an apple", "a car", "a yellow star", "a house", "a tree", "a fish")


def sqs(coding: str, tokens: int) -> Case:
  """The shipped language pair, without end tokens."""
  options = dict(coding=coding, sparsifier="topk", support=32, max_drafts=6)
  return Case("wordnet", row("sqs", f"sqs, {coding}", **options), BEGINNINGS, tokens, max_prompt=16)


CIAR = Case("scenes", row("ciar", "ciar", draft="inter-2", gamma=1, cloud_rate=0.5), CAPTIONS, 144)
# Tables as in the papers: CIAR over networks, and sqs under a budget.
OVER_NETWORKS = (
  row("ciar", "cloud alone, called for every token", draft="inter-2", gamma=1, tau=OPEN, target_prefix=1.0),
  row("ciar", "every token verified", draft="inter-2", gamma=1, tau=CLOSED),
  row("ciar", "CIAR", draft="inter-2", gamma=1, cloud_rate=0.3),
  row("ciar", "CIAR, ids alone", draft="inter-2", gamma=1, cloud_rate=0.3, verify="greedy"),
)
TEMPERATURES = (0.2, 0.6, 1.0)


def budgeted(label: str, **options) -> tuple[Row, ...]:
  """A row of sqs at 3,000 bits a round and every temperature."""
  shared = dict(coding="paper", budget=3000.0, max_drafts=16) | options
  return tuple(row("sqs", f"{label}, T = {t:g}", sampling={"temperature": t}, **shared) for t in TEMPERATURES)


TOP = {support: budgeted(f"K-SQS, K = {support}", sparsifier="topk", support=support) for support in (8, 64)}
CONFORMAL = {
  name: budgeted(f"C-SQS, {name} controller", sparsifier="conformal", support=256, beta1=0.005, eta=eta, alpha=alpha)
  for name, (eta, alpha) in {"published": (1e-3, 5e-4), "fast": (5e-2, 5e-2)}.items()
}
BUDGETED = (*TOP[8], *TOP[64], *CONFORMAL["published"], *CONFORMAL["fast"])
# The default of the method, with fewer drafts, and with another coding.
DEFAULTS = tuple(
  Case("wordnet", row("sqs", f"{drafts} drafts, {coding}", max_drafts=drafts, coding=coding), BEGINNINGS, 60, max_prompt=16)
  for drafts, coding in ((16, "paper"), (6, "paper"), (6, "rice"))
)
# Drafts of a round, and drafts that may wait for their replies (0: an edge that waits, with a bonus token).
AHEAD = tuple(itertools.product((2, 6), (1, 0, 2, 4)))


def ahead(drafts: int, pipeline: int) -> Case:
  """The shipped language pair with drafts that are sent ahead."""
  what = f"pipeline of {pipeline}" if pipeline > 1 else "waits" if pipeline else "waits, bonus"
  options = dict(coding="trimmed", sparsifier="topk", support=32, max_drafts=drafts, bonus=not pipeline)
  options |= dict(pipeline=pipeline) if pipeline > 1 else {}
  shown = row("sqs", f"{drafts} drafts, {what}", sampling={"temperature": 0.2}, **options)
  return Case("wordnet", shown, BEGINNINGS, 40, max_prompt=16)


EVERY_FAULT = "Decodes under every single fault, and under several at once"

TABLES = {
  "faults_lazy": Faults(title=f"{EVERY_FAULT}: sqs, coding lazy", case=sqs("lazy", 110)),
  "faults_trimmed": Faults(title=f"{EVERY_FAULT}: sqs, coding trimmed", case=sqs("trimmed", 160)),
  "faults_ciar": Faults(title=f"{EVERY_FAULT}: ciar", case=CIAR),
  "recovery": Recovery(title="How long a decode stands still", cases=(sqs("lazy", 90), sqs("trimmed", 130))),
  "hostile": Hostile(title="A server under hostile inputs", case=sqs("lazy", 90)),
  "cut_calls": CutCalls(title="Memory over calls that are cut by their deadline", case=sqs("trimmed", 130)),
  "crowd": Crowd(title="Many devices at one server", case=sqs("lazy", 90)),
  "crowd_ciar": Crowd(title="Many devices with CIAR at one server", case=CIAR),
  "overhead_drafts": Overhead(title="What a round of the default of sqs costs", cases=DEFAULTS, repeats=10),
  "overhead": Overhead(title="What the link costs a round", cases=(sqs("lazy", 90), sqs("trimmed", 130), CIAR)),
  "networks_ciar": Networks(
    title="Images over networks, measured and modelled",
    cases=tuple(Case("scenes", each, CAPTIONS, 144) for each in OVER_NETWORKS),
    networks=tuple(NETWORKS),
  ),
  "networks_ahead": Ahead(
    title="Drafts sent ahead over networks, measured and modelled",
    cases=tuple(ahead(*each) for each in AHEAD),
    drafts=tuple(drafts for drafts, _ in AHEAD),
    pipelines=tuple(pipeline for _, pipeline in AHEAD),
  ),
  "networks_sqs": Networks(
    title="Texts over networks, measured and modelled",
    cases=tuple(Case("wordnet", each, BEGINNINGS, 40, max_prompt=16) for each in BUDGETED),
    networks=(*SLOW, *NETWORKS),
    number=24,
    bases=("K-SQS, K = 8", "K-SQS, K = 64"),
  ),
}
