"""A CIAR decode updates the caches of both sides in place, with skipped exchanges and several widths."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import pytest

import jaxspec
from jaxspec.core import rounds
from jaxspec.core.control_flow import run_if
from jaxspec.core.precision import dot_bf16
from jaxspec.drafters.ciar_drafter import CiarDrafter
from jaxspec.intervals.gate import constant_gate
from jaxspec.intervals.scores import IntervalScore
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.heads.inter_head import with_inter_head
from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
from jaxspec.verifiers.ciar_target import CiarVerifier
from tests.ciar_pair import gated_params, transformer_gated
from tests.helpers import FULL_OPTIMISATION, labels, random_params, side


@pytest.mark.slow
def test_no_copy_of_cache_size():
  config = LlamaGenConfig(num_layers=1, dim=64, num_heads=2, vocab_size=64, num_tokens=1024, num_classes=3, multiple_of=8)
  cloud = llamagen_fns(config)
  edge = with_inter_head(llamagen_fns(config), 64)
  params = jaxspec.SpecParams(gated_params(side(random_params(edge, 0)), 0.1), side(random_params(cloud, 1)))
  drafter = CiarDrafter(edge, IntervalScore(), constant_gate, most_drafts=3, max_run=4)
  verifier = CiarVerifier(cloud, jaxspec.lossless, warp=jaxspec.Warp(), window=3, widths=(4, 8))
  run = lambda p, k, c: jaxspec.speculate(p, k, c, drafter=drafter, verifier=verifier, max_len=1024).tokens
  compiled = jax.jit(run).lower(params, jax.random.key(0), ClassLabels(jnp.zeros((1,), jnp.int32))).compile()
  buffers = {f"f32[2,{slots},32]" for slots in (1032, 1040)}  # heads x slots x head size, of edge and cloud
  text = compiled.as_text().splitlines()
  assert any(shape in line for shape in buffers for line in text)
  copies = [line for line in text if " copy(" in line and any(shape in line for shape in buffers)]
  assert not copies, copies[:3]
  layer = 2 * 1040 * 32 * 4
  assert compiled.memory_analysis().temp_size_in_bytes < 2 * 2 * layer + 2 * layer


class FoundDraw:
  """A draw that is found in the text of a program, by the name of a function."""

  def __call__(self, params, logits, keys, offset):
    return jnp.argmax(jnp.cumsum(jnp.arctan(logits), axis=-1), axis=-1).astype(jnp.int32), logits


@pytest.mark.slow
def test_proposals_are_made_only_where_the_edge_drafts():
  """Most tokens are local. What makes the proposal of a draft is in the skipped part, not in front of it."""
  params, kwargs = transformer_gated(cloud_layers=1)
  drafter = dataclasses.replace(kwargs["drafter"], draw=FoundDraw())
  start = functools.partial(rounds.start, max_len=16, **kwargs | dict(drafter=drafter))
  state = jax.eval_shape(start, params, jax.random.key(0), labels(2)).draft_side
  draft = lambda params, state: rounds.draft_round(params, state, drafter=drafter).draft
  text = jax.jit(draft).lower(params.draft, state).compile(FULL_OPTIMISATION).as_text()
  drawing = [part for part in text.split("\n}") if "/atan" in part]
  assert drawing and not any("/attention/" in part for part in drawing)  # of the step around it


def test_run_if_skips_and_runs():
  calls = []

  def count(x):
    jax.debug.callback(lambda: calls.append(1))
    return x + 1

  go = jax.jit(lambda on, x: run_if(on, count, x))
  assert go(jnp.bool_(False), jnp.int32(3)) == 3 and go(jnp.bool_(True), jnp.int32(3)) == 4
  jax.effects_barrier()
  assert len(calls) == 1


def test_what_does_not_change_is_computed_once_for_all_rounds():
  """A weight of the skipped part is rounded before the loop, not in every round."""

  def run(weight, x):
    product = lambda s: jnp.tanh(dot_bf16(s, weight, (1, 1)))
    body = lambda c: (c[0] + 1, run_if(c[0] % 2 == 0, product, c[1]))
    return jax.lax.while_loop(lambda c: c[0] < 10, body, (0, x))[1]

  text = jax.jit(run).lower(jnp.ones((384, 384)), jnp.ones((2, 384))).compile(FULL_OPTIMISATION).as_text()
  made = re.compile(r"= bf16\[384,384\]\S* (fusion|call)\(")
  everywhere = [line for line in text.splitlines() if made.search(line)]
  before_the_loop = [line for line in text[text.index("\nENTRY") :].splitlines() if made.search(line)]
  assert len(everywhere) == 1 and everywhere == before_the_loop, everywhere


def test_skipped_work_is_not_hoisted_from_what_changes():
  """XLA moves what a skipped part computes from the round's arrays in front of it, unless the part reads them as such."""

  def is_hoisted(*, reads):
    def body(carry):
      number, x, total = carry
      row = jnp.sin(x + number)
      if reads:
        total = run_if(number % 2 == 0, lambda total, row: total + row @ row.T, total, row)
      else:
        total = run_if(number % 2 == 0, lambda total: total + row @ row.T, total)
      return number + 1, x, total

    run = lambda x: jax.lax.while_loop(lambda c: c[0] < 10, body, (0, x, jnp.zeros((384, 384))))[2]
    text = jax.jit(run).lower(jnp.ones((384, 384))).compile(FULL_OPTIMISATION).as_text()
    computations = [part for part in text.split("\n}") if "dot_general" in part]
    assert computations
    return any(" while(" in part and "dot_general" in part for part in computations)

  assert not is_hoisted(reads=True)
  if jax.__version_info__ < (0, 11):  # XLA of jax 0.12 hoists nothing here
    assert is_hoisted(reads=False)
