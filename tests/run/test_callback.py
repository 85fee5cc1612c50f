"""Callbacks of a decode, cancelling from them, and the warm-up."""

import jax
import numpy as np
import pytest

from jaxspec.errors import Cancelled, OptionError, PromptError
from jaxspec.methods import Sjd
from jaxspec.run.loading import load_pipeline
from tests.helpers import slow_but
from tests.run import tiny


@pytest.mark.parametrize("method", slow_but(["speculative", "ar", Sjd(window=2)], ["speculative"]))
def test_a_callback_sees_every_token_once(toys, method):
  pipe, seen = load_pipeline(toys, matmul_precision="float32"), []
  kwargs = dict(key=3, method=method, temperature=100.0, batch=2)
  wanted = pipe([2, 0, 1], **kwargs)
  out = pipe([2, 0, 1], callback=seen.append, **kwargs)
  np.testing.assert_array_equal(out.tokens, wanted.tokens)
  np.testing.assert_array_equal(out.counters.target_calls, wanted.counters.target_calls)
  assert out.failure is None and len(out.run_s) == 1 and out.images.shape == wanted.images.shape
  rows = {}
  for committed in seen:
    starts = committed.lengths - committed.num_new
    for row, tokens, start, stop in zip(committed.rows, committed.tokens, starts, committed.lengths, strict=True):
      assert len(rows.setdefault(int(row), [])) == start and not tokens[stop:].any()
      rows[int(row)] += tokens[start:stop].tolist()
  assert rows == dict(enumerate(wanted.tokens.tolist()))
  assert [committed.round for committed in seen if 2 in committed.rows] == list(range(int(out.counters.rounds[2]) + 1))


@pytest.mark.slow
def test_a_callback_cancels(toys):
  pipe, rounds = load_pipeline(toys, matmul_precision="float32"), []
  wanted = pipe([2, 0, 1], key=3, method="ar", batch=2)

  def stop(committed):
    rounds.append(committed.round)
    if len(rounds) == 6:
      raise Cancelled("enough")

  out = pipe([2, 0, 1], key=3, method="ar", batch=2, callback=stop)
  assert rounds == [0, 1, 2, 3, 0, 1]
  assert isinstance(out.failure, Cancelled) and isinstance(out.failure, RuntimeError)
  assert out.lengths.tolist() == [4, 4, 2] and out.images is None and out.captions == wanted.captions
  np.testing.assert_array_equal(out.tokens[:2], wanted.tokens[:2])
  np.testing.assert_array_equal(out.tokens[2], [*wanted.tokens[2, :2], 0, 0])
  rounds[:] = [0] * 5
  out = pipe([2, 0, 1], key=3, method="ar", batch=2, callback=stop)  # in the prefill of the first batch
  assert out.num == 2 and out.lengths.tolist() == [1, 1]
  assert pipe([2, 0, 1], key=3, method="ar", batch=2).lengths.tolist() == [4, 4, 4]


def test_other_errors_of_a_callback_are_passed_on(toys):
  def fail(committed):
    raise KeyError("of the program")

  with pytest.raises(KeyError, match="of the program"):
    load_pipeline(toys)([1], key=0, callback=fail)


@pytest.mark.slow
def test_a_method_without_rounds_calls_back_once(masked):
  pipe, seen = load_pipeline(masked), []
  out = pipe([0, 1], key=0, method="parallel", callback=seen.append)
  (committed,) = seen
  assert committed.num_new.tolist() == committed.lengths.tolist() == [4, 4] and out.images is not None


def test_a_mesh_has_no_callback(toys):
  with pytest.raises(OptionError, match="no mesh with a callback"):
    load_pipeline(toys, mesh="data=1")([1], key=0, callback=print)


def _compiled(call):
  """Number of programs that ``call`` compiles."""
  events = []
  listen = lambda name, seconds, **kwargs: events.append(name) if name.endswith("backend_compile_duration") else None
  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    call()
  finally:
    jax.monitoring.unregister_event_duration_listener(listen)
  return len(events)


@pytest.mark.slow
def test_after_a_warm_up_nothing_compiles(tmp_path, compiled_operations):
  pipe = load_pipeline(tiny.captions(tmp_path / "captions"))
  assert _compiled(lambda: pipe.warmup(batch=3, method="speculative")) and len(pipe.programs)
  kept = len(pipe.programs)
  assert not _compiled(lambda: pipe(["red apple", "cat", "dog"], key=5, method="speculative", temperature=0.8).pil)
  assert len(pipe.programs) == kept
  assert pipe.warmup(["red apple", "cat", "dog"]) > 0 and len(pipe.programs) == kept
  with pytest.raises(OptionError, match="batch from 1"):
    pipe.warmup(batch=0)
  with pytest.raises(OptionError, match="method"):
    pipe.warmup(method="none")
  with pytest.raises(PromptError):
    pipe.warmup([3])


def test_every_family_has_an_example_prompt(toys, texts, masked):
  for path in (toys, texts, masked):
    pipe = load_pipeline(path)
    assert pipe.encode([pipe.family.example_prompt]).condition.batch_size == 1
