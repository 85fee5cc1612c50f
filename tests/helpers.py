"""Toy models with known distributions, shared by the tests."""

from __future__ import annotations

import dataclasses
import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core.types import ModelFns, ModelOutput
from jaxspec.drafters.eagle_chain import EagleChainDrafter
from jaxspec.drafters.eagle_tree import EagleTreeDrafter
from jaxspec.models import guidance
from jaxspec.models.conditions import Caption, ClassLabels
from jaxspec.models.guidance import Guided
from jaxspec.models.heads.eagle_head import EagleConfig, eagle_fns
from jaxspec.models.heads.feature_head import attach
from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
from jaxspec.rules.tree_rule import tree_rule
from jaxspec.verifiers.target import target_features

# The compiler's defaults, for tests that depend on fusions; the suite runs with fewer optimisations (tests/conftest.py).
FULL_OPTIMISATION = {"xla_backend_optimization_level": 3}
if "xla_cpu_use_fusion_emitters" in os.environ.get("XLA_FLAGS", ""):  # newer versions of XLA have no such flag
  FULL_OPTIMISATION["xla_cpu_use_fusion_emitters"] = True


def slow_but(values, fast):
  """Parameters of a test: the values in ``fast`` belong to the default suite, the others to the slow tests."""
  assert set(fast) <= set(values), (fast, values)
  slow = lambda value: pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
  return [value if value in fast else slow(value) for value in values]


@functools.cache
def markov_fns(vocab: int) -> ModelFns:
  """A Markov chain: parameters ``[V + 1, V]`` logits; the last row is the distribution of token 0."""

  def apply(params, inputs, cache=None, *, positions=None, mask=None, inject=None, logits_at=None, slot=None):
    if isinstance(inputs, ClassLabels):
      rows = inputs.labels.shape[0]
      logits = jnp.broadcast_to(params[vocab][None, None], (rows, 1, vocab))
    else:
      logits = params[inputs]
      if logits_at is not None:
        index = jnp.broadcast_to(logits_at[:, None, None], (logits.shape[0], 1, vocab))
        logits = jnp.take_along_axis(logits, index, axis=1)
    return ModelOutput(logits, logits), cache

  return ModelFns(
    init=lambda key: jax.random.normal(key, (vocab + 1, vocab)),
    init_cache=lambda batch, max_len: (),
    apply=apply,
    prefix_len=lambda condition: 1,
    compact=lambda cache, slot, path: cache,
    take=lambda cache, slots: cache,
    put=lambda cache, rows, slots, start=None, width=None: cache,
  )


def markov_joint(probs: np.ndarray, length: int) -> np.ndarray:
  """Exact distribution of the first ``length`` tokens, ``[V] * length``; ``probs [V + 1, V]``, last row first token."""
  joint = probs[-1]
  for _ in range(length - 1):
    joint = joint[..., None] * probs[:-1]
  return joint


def labels(rows: int) -> ClassLabels:
  return ClassLabels(jnp.arange(rows, dtype=jnp.int32) % 3)


TARGET = LlamaGenConfig(num_layers=1, dim=32, num_heads=2, vocab_size=13, num_tokens=16, num_classes=3, multiple_of=16)
DRAFT = LlamaGenConfig(num_layers=1, dim=16, num_heads=2, vocab_size=13, num_tokens=16, num_classes=3, multiple_of=16)


def random_params(fns: ModelFns, seed: int, scale: float = 0.5):
  """Parameters with an output head that is not zero."""
  # `jax.numpy.asarray` would compile a program for every shape.
  template = jax.eval_shape(fns.init, jax.random.key(0))
  leaves, treedef = jax.tree.flatten(template)
  generator = np.random.default_rng(seed)
  normal = lambda leaf: generator.normal(size=leaf.shape)
  draw = lambda leaf: normal(leaf) * scale if leaf.ndim > 1 else 1 + 0.1 * normal(leaf)
  return jax.tree.unflatten(treedef, [jax.device_put(np.float32(draw(leaf))) for leaf in leaves])


def side(params, *, scale: float | None = None, temperature: float = 1.0, top_p: float = 1.0) -> jaxspec.ModelParams:
  """Parameters of the draft side or the target side; with a guidance scale the weights become `Guided`."""
  weights = params if scale is None else Guided(params, jnp.float32(scale))
  return jaxspec.ModelParams(weights, jaxspec.sampling_params(temperature, top_p))


def tiny_pair(*, window: int = 3, guided: bool = False, warp: jaxspec.Warp = jaxspec.Warp(), layers: int = 1, **sampling):
  """A random transformer pair: ``(SpecParams, drafter, verifier)``."""
  target, draft = llamagen_fns(dataclasses.replace(TARGET, num_layers=layers)), llamagen_fns(DRAFT)
  scale = 2.0 if guided else None
  params = jaxspec.SpecParams(
    side(random_params(draft, 1), scale=scale, **sampling), side(random_params(target, 2), scale=scale, **sampling)
  )
  if guided:
    target, draft = guidance.guided(target), guidance.guided(draft)
  drafter = jaxspec.SmallModelDrafter(draft, window=window, warp=warp)
  return params, drafter, jaxspec.TargetVerifier(target, jaxspec.lossless, warp=warp)


CAPTIONS = LlamaGenConfig(
  model_type="t2i", num_layers=1, dim=32, num_heads=4, num_kv_heads=2, vocab_size=13, num_tokens=16, prefix_len=5,
  caption_dim=6, multiple_of=16,
)  # fmt: skip


@functools.cache
def tiny_eagle(
  name: str, temperature: float = 1.0, warp: jaxspec.Warp = jaxspec.Warp(), total: int = 7, top_k: int = 3, depth: int = 2,
  chain: int = 0, combined: bool = False,
):  # fmt: skip
  """A random target and EAGLE drafter: ``(SpecParams, kwargs, host, head)``; ``captions`` are guided, ``classes`` are not.

  With a positive ``chain`` the drafter drafts chains of that length instead of trees. With ``combined`` the drafter of a
  guided target has no guidance.
  """
  config = CAPTIONS if name == "captions" else TARGET
  host, head = llamagen_fns(config), eagle_fns(EagleConfig.of(config))
  host_params = random_params(host, 2)
  scale = 2.0 if name == "captions" else None
  sides = [attach(random_params(head, 3, scale=0.15), host_params), host_params]
  scales = [None if combined else scale, scale]
  params = jaxspec.SpecParams(*(side(w, scale=s, temperature=temperature) for w, s in zip(sides, scales)))
  if scale is not None:
    host = guidance.guided(host, features="combined" if combined else "both")
    head = head if combined else guidance.guided(head)
  drafter = EagleTreeDrafter(head, total=total, top_k=top_k, depth=depth, warp=warp)
  rule = tree_rule(max_path=depth + 1)
  if chain:
    drafter, rule = EagleChainDrafter(head, window=chain, warp=warp), jaxspec.lossless
  verifier = jaxspec.TargetVerifier(host, rule, warp=warp, feedback_fn=target_features)
  return params, dict(drafter=drafter, verifier=verifier), host, head


def eagle_condition(name: str, rows: int):
  """The condition of `tiny_eagle`; captions are padded by different lengths."""
  if name == "classes":
    return labels(rows)
  generator = np.random.default_rng(5)
  mask = np.arange(5)[None] >= np.arange(rows)[:, None] % 4
  return Caption(jnp.asarray(generator.normal(size=(rows, 5, 6)) * mask[..., None], jnp.float32), jnp.asarray(mask))
