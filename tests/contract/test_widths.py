"""Passes of several widths: short drafts are judged by the narrowest pass that holds them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec import testing
from jaxspec.core import rng
from jaxspec.core.constructors import with_draft
from jaxspec.methods import Parts
from jaxspec.verifiers.target import no_feedback, target_features
from tests.contract import networks
from tests.contract.cases import CASES, LOGITS, NOISE, ROWS, N, V
from tests.helpers import side

WINDOW = 3


@functools.cache
def _sparse(most: int) -> jaxspec.Drafter:
  """A drafter that proposes 0 to ``most`` of its drafts, like prompt look-up."""
  inner = jaxspec.SmallModelDrafter(networks.history_fns(V, N), window=WINDOW, warp=jaxspec.Warp())

  def draft(params, keys, state, cursor):
    drafted, state, trace = inner.draft(params, keys, state, cursor)
    return drafted._replace(num_drafted=jnp.int32((most + 1) * rng.uniform(keys, 1 << 18))), state, trace

  return with_draft(inner, draft)


def _parts(widths: tuple[int, ...], most: int = WINDOW, feedback_fn=target_features) -> Parts:
  params = jaxspec.SpecParams(*(side({"output": jnp.asarray(table, jnp.float32)}) for table in (LOGITS + NOISE, LOGITS)))
  target = networks.history_fns(V, N)
  kwargs = dict(warp=jaxspec.Warp(), feedback_fn=feedback_fn, widths=widths)
  return Parts(params, _sparse(most), jaxspec.TargetVerifier(target, jaxspec.lossless, **kwargs))


@pytest.mark.slow
def test_the_contract_holds_and_the_distribution_is_the_targets():
  condition = CASES["ar"].condition(ROWS)
  out = testing.check_contract(
    lambda: _parts((1, 2), feedback_fn=no_feedback), condition, max_len=N,
    key=testing.fast_keys(3, ROWS), num_alone=2, drivers=False,
  )  # fmt: skip
  samples = np.concatenate([np.asarray(condition.labels)[:, None], out.tokens[:, 1:4]], axis=1)
  testing.assert_same_distribution(samples, CASES["ar"].joint().sum(axis=(1, 5, 6)))


@pytest.mark.slow
@pytest.mark.parametrize("most", [0, WINDOW])
def test_widths_change_no_token(most):
  """One row at a time, so that narrow passes occur."""
  decode = lambda widths, key: jaxspec.speculate(
    (made := _parts(widths, most)).params, key, CASES["ar"].condition(1), drafter=made.drafter, verifier=made.verifier,
    max_len=N,
  )  # fmt: skip
  for seed in range(8):
    plain, narrow = (decode(widths, jax.random.key(seed)) for widths in ((), (1, 2)))
    jax.tree.map(np.testing.assert_array_equal, narrow, plain)


def _inputs_of_passes(widths: tuple[int, ...]) -> set[int]:
  """Inputs of every pass in a compiled round."""
  made, seen = _parts(widths), set()
  target = networks.history_fns(V, N)

  def apply(params, inputs, cache=None, **kwargs):
    if isinstance(inputs, jax.Array):
      seen.add(inputs.shape[1])
    return target.apply(params, inputs, cache, **kwargs)

  verifier = jaxspec.TargetVerifier(target._replace(apply=apply), jaxspec.lossless, warp=jaxspec.Warp(), widths=widths)
  run = functools.partial(jaxspec.speculate, drafter=made.drafter, verifier=verifier, max_len=N)
  jax.eval_shape(run, made.params, jax.random.key(0), CASES["ar"].condition(1))
  return seen


def test_there_is_a_pass_for_every_width_below_the_window():
  assert _inputs_of_passes(()) == {WINDOW + 1}
  assert _inputs_of_passes((1, 2, 9)) == {1, 2, WINDOW + 1}


def test_widths_ascend():
  with pytest.raises(ValueError, match=r"Must have ascending widths from 1 on, we instead got \(2, 1\)"):
    _parts((2, 1))
  with pytest.raises(ValueError, match="ascending widths"):
    _parts((0,))
