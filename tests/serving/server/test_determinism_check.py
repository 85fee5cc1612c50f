"""The determinism check refuses programs whose rows depend on each other, and its digest identifies the numerics."""

import functools
import platform
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.core.mesh import make_mesh
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.serving.server.determinism_check import check_determinism
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.server.server_programs import Programs
from jaxspec.serving.server.step_arrays import Sizes
from jaxspec.serving.wire.sqs_codec import PlainCodec
from tests import devices
from tests.helpers import TARGET, markov_fns, random_params, side
from tests.serving.server.crowds import EXAMPLE

V = 5
WEIGHTS = np.random.default_rng(0).normal(size=(V + 1, V)).astype(np.float32)


@functools.cache
def model_of(change):
  """A Markov table whose logits ``[B, T, V]`` may be changed by a function of them; programs of one model are shared."""
  plain = markov_fns(V)

  def apply(*args, **kwargs):
    output, cache = plain.apply(*args, **kwargs)
    return output if change is None else output._replace(logits=change(output.logits)), cache

  return plain._replace(apply=apply)


def programs_of(change=None, weights=WEIGHTS, mesh=None):
  sizes = Sizes(3, 2, 12, (8, 16))
  return Programs(side(jax.device_put(weights)), model_of(change), (ServedProfile(PlainCodec(V)),), sizes, EXAMPLE, mesh)


@pytest.mark.slow
def test_rows_that_stand_for_themselves_are_served():
  found = check_determinism(programs_of())
  assert found.is_exact and found.replay_in_chunks and found.digest == check_determinism(programs_of()).digest


@pytest.mark.slow
@pytest.mark.parametrize(
  "change",
  [
    lambda logits: logits + 1e-6 * jnp.mean(logits, axis=0, keepdims=True),
    lambda logits: logits * jnp.arange(1.0, 1.0 + logits.shape[0])[:, None, None],
  ],
  ids=["mean", "place"],
)
def test_rows_that_depend_on_others_are_refused(change):
  """A mean over the batch; the place in the batch."""
  with pytest.raises(ValueError, match="other rows of a step"):
    check_determinism(programs_of(change))
  found = check_determinism(programs_of(change), "fast")
  assert not found.is_exact and not found.replay_in_chunks and len(found.digest) == 32


@pytest.mark.slow
def test_a_neighbour_of_nan_is_seen():
  """A sum over the batch that is multiplied by 0 changes no bit, unless a row is NaN."""
  plain = llamagen_fns(TARGET)

  def apply(*args, **kwargs):
    output, cache = plain.apply(*args, **kwargs)
    return output._replace(logits=output.logits + 0 * jnp.sum(output.logits)), cache

  params, profiles = side(random_params(plain, 2)), (ServedProfile(PlainCodec(TARGET.vocab_size)),)
  programs = Programs(params, plain._replace(apply=apply), profiles, Sizes(2, 2, 8, (8,)), EXAMPLE)
  with pytest.raises(ValueError, match="other rows of a step"):
    check_determinism(programs)


@pytest.mark.slow
def test_a_network_that_sees_the_cuts_is_replayed_in_the_cuts_of_its_calls():
  by_width = lambda logits: logits * (1.0 + 1e-6 * logits.shape[1])
  found = check_determinism(programs_of(by_width))
  assert found.is_exact and not found.replay_in_chunks


@pytest.mark.slow
def test_digests_tell_numerics_apart():
  digests = [check_determinism(programs_of()).digest]
  digests.append(check_determinism(programs_of(weights=WEIGHTS * np.float32(1 + 1e-6))).digest)
  with jax.default_matmul_precision("bfloat16"):
    digests.append(check_determinism(programs_of()).digest)
  on_mesh = check_determinism(programs_of(mesh=make_mesh("data=1")))
  assert on_mesh.is_exact and on_mesh.replay_in_chunks and len({*digests, on_mesh.digest}) == 4


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names instruction sets of one family")
def test_instruction_sets_are_told_apart(monkeypatch):
  """One program text on one machine, with and without fused multiplication and addition."""
  monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")  # programs of the other tests fuse nothing
  monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")
  found = []
  for instructions in ("AVX", "AVX2", "AVX2"):
    monkeypatch.setenv("XLA_FLAGS", f"--xla_cpu_max_isa={instructions}")
    found.append(devices.output_of(devices.run("tests.serving.server.numerics_digest", devices=1)))
  assert all(each["exact"] for each in found)
  assert found[1] == found[2] and found[0]["numerics"] != found[1]["numerics"]


def test_what_cannot_be_compiled():
  fns, params, profiles = markov_fns(V), side(jnp.asarray(WEIGHTS)), (ServedProfile(PlainCodec(V)),)
  for sizes in (
    Sizes(0, 2, 12, (8,)),
    Sizes(3, 2, 12, (4,)),
    Sizes(3, 2, 12, (16, 8)),
    Sizes(3, 2, 12, ()),
    Sizes(3, 3, 12, (9,)),
    Sizes(4, 2, 12, (8,), groups=2),
  ):
    with pytest.raises(ValueError, match="Must have"):
      Programs(params, fns, profiles, sizes, EXAMPLE)
  for more in ((), (ServedProfile(PlainCodec(V)), ServedProfile(PlainCodec(V + 1)))):
    with pytest.raises(ValueError, match="one vocabulary"):
      Programs(params, fns, more, Sizes(3, 2, 12, (8,)), EXAMPLE)
  with pytest.raises(ValueError, match="this process's own devices"):
    Programs(params, fns, profiles, Sizes(3, 2, 12, (8,)), EXAMPLE, SimpleNamespace(is_multi_process=True))
  with pytest.raises(ValueError, match="numerics in exact, fast"):
    check_determinism(programs_of(), "nearly")
