"""Envelopes and openings: what was written is read, and hostile bytes end in a typed error before an array is made."""

import tracemalloc
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.core.loop import end_tuple
from jaxspec.models.conditions import Caption, ClassLabels, Prompt
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.envelope import (
  OVERHEAD_BYTES,
  ROW_BYTES,
  Kind,
  max_frames_bytes,
  read_envelope,
  read_frames,
  stream_of,
  write_envelope,
  write_frames,
)
from jaxspec.serving.wire.handshake import Agreement, ConditionSpec, read_opening, write_opening
from jaxspec.serving.wire.named_arrays import ArraySpec, read_arrays, write_arrays

FRAMES = [b"zero", None, b"", b"three"]
PROFILE = "sqs:vocab=13"
KEYS = jax.vmap(jax.random.key)(jnp.arange(3))
AGREEMENT = Agreement(3, 16, (2, 5), 4)
LIMITS = dict(max_rows=8, max_len=20)
CONDITIONS = {
  "labels": (ClassLabels(jnp.array([0, 2, 1])), ConditionSpec.labels(3)),
  "prompts": (Prompt(jnp.array([[1, 2], [3, 4], [0, 0]]), jnp.array([[True, False]] * 3)), ConditionSpec.prompts(5, 4)),
  "captions": (
    Caption(jnp.linspace(-1, 1, 24, dtype=jnp.bfloat16).reshape(3, 4, 2), jnp.ones((3, 4), bool)),
    ConditionSpec.captions(4, 2, "bfloat16"),
  ),
}


def test_envelopes_come_back():
  data = write_envelope(Kind.DRAFT, 77, write_frames(FRAMES))
  assert len(data) == OVERHEAD_BYTES + 3 * ROW_BYTES + 9 <= max_frames_bytes(4, 5)
  got = read_envelope(data, len(data))
  assert (got.kind, got.stream) == (Kind.DRAFT, 77)
  assert read_frames(got.body, 4) == FRAMES
  assert read_frames(b"", 2) == [None, None]


def test_every_flipped_bit_and_every_cut_of_an_envelope_is_found():
  data = write_envelope(Kind.REPLY, 77, write_frames(FRAMES))
  for bit in range(8 * len(data)):
    broken = bytearray(data)
    broken[bit // 8] ^= 1 << bit % 8
    with pytest.raises(MessageError):
      read_envelope(bytes(broken), len(data))
  for end in range(len(data)):
    with pytest.raises(MessageError):
      read_envelope(data[:end], len(data))
  for wrong in (None, data + b"\0", b"\0" * 300):
    with pytest.raises(MessageError, match="length"):
      read_envelope(wrong, len(data))


@pytest.mark.parametrize("kind", [0, 8, 255])
def test_unknown_kinds_are_refused(kind):
  with pytest.raises(MessageError, match="kind"):
    read_envelope(write_envelope(kind, 1), 100)


@pytest.mark.parametrize("body,reason", [
  (write_frames([None] * 4 + [b"x"]), "range"),  # no such row
  (write_frames([b"x"]) * 2, "range"),  # twice
  (write_frames([None, b"x"]) + write_frames([b"x"]), "range"),  # descending
  (write_frames([b"xyz"])[:-1], "truncated"),
  (write_frames([b"xyz"]) + b"\0\0", "truncated"),
])  # fmt: skip
def test_rows_that_do_not_ascend_are_refused(body, reason):
  with pytest.raises(MessageError) as caught:
    read_frames(body, 4)
  assert caught.value.reason == reason


@pytest.mark.parametrize("name", CONDITIONS)
def test_openings_come_back(name):
  condition, spec = CONDITIONS[name]
  body = write_opening(PROFILE, AGREEMENT, KEYS, condition)
  assert len(body) <= spec.max_opening_bytes(3)
  for accepted in (spec, ConditionSpec.like(condition)):
    got = read_opening(body, PROFILE, accepted, **LIMITS)
    assert got.agreement == AGREEMENT and type(got.condition) is type(condition)
    np.testing.assert_array_equal(jax.random.key_data(got.keys), jax.random.key_data(KEYS))
    for ours, theirs in zip(got.condition, condition, strict=True):
      assert ours.dtype == theirs.dtype
      np.testing.assert_array_equal(np.asarray(ours, np.float32), np.asarray(theirs, np.float32))


def test_keys_of_other_kinds_cross():
  keys = jax.random.split(jax.random.key(3, impl="rbg"), 3)
  condition, spec = CONDITIONS["labels"]
  got = read_opening(write_opening(PROFILE, AGREEMENT, keys, condition), PROFILE, spec, **LIMITS)
  np.testing.assert_array_equal(jax.random.bits(got.keys[1]), jax.random.bits(keys[1]))


def test_openings_that_do_not_fit_are_refused():
  condition, spec = CONDITIONS["labels"]
  read = lambda body, profile=PROFILE, spec=spec, **limits: read_opening(body, profile, spec, **(LIMITS | limits))
  body = write_opening(PROFILE, AGREEMENT, KEYS, condition)
  for reason, call in [
    ("profile", lambda: read(body, "ciar:vocab=13")),
    ("range", lambda: read(body, max_rows=2)),
    ("range", lambda: read(body, max_len=15)),
    ("range", lambda: read(body, spec=ConditionSpec.labels(2))),
    ("kind", lambda: read(body, spec=CONDITIONS["prompts"][1])),
    ("length", lambda: read(body + b"\0")),
    ("truncated", lambda: read(body[:-1])),
    ("range", lambda: read(write_opening(PROFILE, AGREEMENT, KEYS, ClassLabels(jnp.array([0, -1, 2]))))),
    ("range", lambda: read(write_opening(PROFILE, AGREEMENT, KEYS, ClassLabels(jnp.array([0, 1]))))),
    ("kind", lambda: read(write_opening(PROFILE, AGREEMENT, KEYS, ClassLabels(jnp.array([0.0, 1, 2]))))),
  ]:
    with pytest.raises(MessageError) as caught:
      call()
    assert caught.value.reason == reason
  prompt, prompts = CONDITIONS["prompts"]
  for bad in (prompt._replace(mask=prompt.mask[:, :1]), Prompt(jnp.zeros((3, 5), int), jnp.ones((3, 5), bool))):
    with pytest.raises(MessageError, match="entries in P"):
      read(write_opening(PROFILE, AGREEMENT, KEYS, bad), spec=prompts)
  caption, captions = CONDITIONS["captions"]
  with pytest.raises(MessageError, match="not a number"):
    read(write_opening(PROFILE, AGREEMENT, KEYS, caption._replace(features=caption.features * jnp.nan)), spec=captions)
  with pytest.raises(MessageError, match="bool"):
    good = write_opening(PROFILE, AGREEMENT, KEYS, prompt)
    read(good[:-1] + b"\2", spec=prompts)


def test_hostile_openings_end_in_an_error_or_in_an_opening():
  """Random edits; a size that was edited allocates nothing."""
  generator = np.random.default_rng(0)
  accepted = 0
  tracemalloc.start()
  for name in CONDITIONS:
    condition, spec = CONDITIONS[name]
    body = write_opening(PROFILE, AGREEMENT, KEYS, condition)
    for _ in range(700):
      noisy = bytearray(body)
      for _ in range(generator.integers(1, 4)):
        noisy[generator.integers(len(noisy))] = generator.integers(256)
      noisy = bytes(noisy[: len(noisy) - generator.integers(0, 2)])
      try:
        got = read_opening(noisy, PROFILE, spec, **LIMITS)
      except MessageError:
        continue
      accepted += 1
      assert write_opening(PROFILE, got.agreement, got.keys, got.condition) == noisy
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert accepted > 0 and peak < 4e6


def test_arrays_of_hostile_sizes_are_refused_before_they_are_made():
  spec = {"x": ArraySpec("float32", ("P", "Q"))}
  head = b"\1x" + bytes([3, 3]) + (3).to_bytes(4) + (2**31).to_bytes(4) * 2
  with pytest.raises(MessageError, match="truncated"):
    read_arrays(head, spec, num_rows=3, most={"P": 2**31, "Q": 2**31})
  with pytest.raises(ValueError, match="of type"):
    write_arrays({"x": np.zeros(3, np.float64)})
  with pytest.raises(ValueError, match="of type"):
    ArraySpec("object")


def test_settings_of_our_own_are_checked():
  condition, _ = CONDITIONS["labels"]
  bad_settings = (dict(num_rows=0), dict(max_len=0), dict(target_prefix=-1), dict(end_tokens=(1,) * 9))
  for bad in (*bad_settings, dict(num_rows=1 << 16)):
    with pytest.raises(ValueError, match="we instead got"):
      Agreement(**(dict(num_rows=3, max_len=4) | bad))
  with pytest.raises(ValueError, match="named tuple"):
    ConditionSpec.like(jnp.zeros(3))
  with pytest.raises(ValueError, match="named tuple"):
    ConditionSpec(ClassLabels, {"names": ArraySpec("int32")})
  with pytest.raises(ValueError, match="named tuple"):
    write_opening(PROFILE, AGREEMENT, KEYS, [condition.labels])
  assert end_tuple(None) == end_tuple(-1) == end_tuple(()) == ()
  assert end_tuple(3) == (3,) and end_tuple((3, 4)) == (3, 4)


def test_the_stream_number_tells_openings_apart():
  condition, _ = CONDITIONS["labels"]
  first, again = (write_opening(PROFILE, AGREEMENT, KEYS, condition) for _ in range(2))
  other = write_opening(PROFILE, AGREEMENT, jax.vmap(jax.random.key)(jnp.arange(3) + 1), condition)
  assert stream_of(first) == stream_of(again) == zlib.crc32(first) != stream_of(other)
