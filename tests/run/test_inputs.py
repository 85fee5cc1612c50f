"""Inputs of a pipeline: keys and numbers of every form; others are errors of one line."""

import jax
import numpy as np
import pytest

from jaxspec.core import rng
from jaxspec.methods import Ciar, Gsd, Speculative
from jaxspec.run.loading import load_pipeline
from jaxspec.run.rounds import rounds
from jaxspec.sampling import ContinuousSampling, SamplingConfig


class _Tensor:
  """As those of PyTorch: a dtype that NumPy and JAX do not know."""

  dtype, ndim, shape = "torch.int64", 0, ()


REFUSED_KEYS = {
  "nothing": (None, "a NoneType"),
  "a truth value": (True, "a bool"),
  "text": ("0", "a str"),
  "a fraction": (0.5, "a float"),
  "too large a seed": (2**70, "a seed of at most 64 bits"),
  "a seed of 64 bits without a sign": (2**63, "a seed of at most 64 bits with its sign"),
  "a number of another library": (_Tensor(), "a _Tensor"),
  "other numbers": (np.zeros(3, np.uint32), r"dtype uint32 \[3\]"),
  "seeds of rows": (np.arange(2), r"dtype int64 \[2\]"),
  "too many": (jax.random.split(jax.random.key(1), 3), r"one key or 1 row keys, we instead got shape \(3,\)"),
}
LABELS = [2, 0, 1]


@pytest.mark.parametrize("name", REFUSED_KEYS)
def test_what_is_no_key(name):
  key, words = REFUSED_KEYS[name]
  with pytest.raises(ValueError, match=words):
    rng.row_keys(key, 1)


@pytest.mark.slow
def test_keys_of_every_form(toys):
  """A seed and the data of a key are equivalent to the key."""
  pipe = load_pipeline(toys)
  sampling = SamplingConfig(temperature=100.0)
  draw = lambda key: pipe(LABELS, key=key, method="ar", sampling=sampling).tokens
  whole, rows = draw(jax.random.key(5)), jax.random.key_data(rng.row_keys(5, 3))
  for key in (5, np.int64(5), np.uint32(5), jax.numpy.int32(5), np.array([0, 5], np.uint32), np.asarray(rows)):
    np.testing.assert_array_equal(draw(key), whole)
  decoder, condition = pipe.decoder("ar", sampling=sampling), pipe.encode(LABELS).condition
  np.testing.assert_array_equal(decoder(condition, key=5, max_len=4).tokens, whole)
  job = pipe.job(LABELS, method="ar", sampling=sampling, seed=5)
  *_, (last, _) = rounds(job, job.batches(3))
  np.testing.assert_array_equal(last.tokens, whole)
  *_, last = decoder.iterate(condition, key=5, max_len=4)
  np.testing.assert_array_equal(last.tokens, whole)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rbg", "unsafe_rbg"])
def test_keys_of_other_kinds(kind):
  """Under vmap they would share random numbers; a row depends on its own key only."""
  keys = jax.random.split(jax.random.key(5, impl=kind), 3)
  together = rng.uniforms(rng.row_keys(keys, 3), 4)
  alone = [rng.uniforms(rng.row_keys(keys[row : row + 1], 1), 4)[0] for row in range(3)]
  np.testing.assert_array_equal(together, alone)
  assert len(np.unique(together)) == 12
  assert len(np.unique(rng.uniforms(rng.row_keys(jax.random.key(5, impl=kind), 3), 4))) == 12
  numbers = np.asarray(jax.random.key_data(keys))
  np.testing.assert_array_equal(rng.uniforms(rng.row_keys(numbers, 3), 4), rng.uniforms(rng.row_keys(
    jax.random.wrap_key_data(numbers, impl="rbg"), 3), 4))  # fmt: skip


def test_options_are_plain_numbers():
  method, sampling = Gsd(group_size=np.int64(50), max_gap=np.float32(0.25)), SamplingConfig(top_k=jax.numpy.int32(2))
  assert method == Gsd(group_size=50, max_gap=0.25) and type(method.group_size) is int and type(method.max_gap) is float
  assert sampling == SamplingConfig(top_k=2) and hash(sampling) == hash(SamplingConfig(top_k=2))
  assert type(Ciar(early_close=np.True_).early_close) is bool
  assert ContinuousSampling(np.str_("ddim5")) == ContinuousSampling("ddim5")
  for wrong in ("3", np.float32(3.5), np.array([3]), np.True_, None):
    with pytest.raises(ValueError, match="Must have an int as group_size"):
      Gsd(group_size=wrong)
  with pytest.raises(ValueError, match="top_p of at most 1, we instead got 1.0000001$"):
    SamplingConfig(top_p=1.0000001)


@pytest.mark.slow
def test_lengths(toys):
  pipe = load_pipeline(toys)
  decoder, condition = pipe.decoder(), pipe.encode([1]).condition
  method = pipe.method("speculative", gamma=np.int64(3))
  assert method == Speculative(draft="rough", gamma=3)
  assert pipe(np.array([2]), key=0, method=method, max_len=np.int64(2)).tokens.shape == (1, 2)
  for end_token in (np.int64(0), [0], np.array([0, 1]), {0}):
    assert decoder(condition, key=0, end_token=end_token).lengths.shape == (1,)


def test_empty_names_are_not_the_default(toys):
  """As those of an unset variable."""
  pipe = load_pipeline(toys)
  with pytest.raises(ValueError, match="a method in .*, we instead got ''"):
    pipe.decoder("")
  for draft in ("", 3):
    with pytest.raises(ValueError, match=f"a draft in .*, we instead got {draft!r}"):
      pipe.method("speculative", draft=draft)
    with pytest.raises(ValueError, match=f"a draft in .*, we instead got {draft!r}"):
      pipe.decoder(Speculative(draft=draft))


def test_bad_lengths(toys):
  pipe = load_pipeline(toys)
  decoder, condition = pipe.decoder(), pipe.encode([1]).condition
  for end_token in ("0", 0.5, True, [None], 2**31):
    with pytest.raises(ValueError, match="Must have an id, or several, as end_token"):
      decoder(condition, key=0, end_token=end_token)
  for max_len in ("3", 0, 2.0, True, np.float32(2), [2]):
    for call in (lambda: pipe([1], key=0, max_len=max_len), lambda: decoder(condition, key=0, max_len=max_len)):  # noqa: B023
      with pytest.raises(ValueError, match="a whole number of at least 1 as max_len"):
        call()
  with pytest.raises(ValueError, match="max_len of at most 2,147,483,647"):
    pipe([1], key=0, max_len=2**40)


@pytest.mark.parametrize(
  "kwargs, words",
  [
    ({"path": 3}, "the path of a folder"),
    ({"path": b"toys"}, "the path of a folder"),
    ({"path": ""}, "^Must have the path of a folder, or the name of a shipped bundle, we instead got ''$"),
    ({"draft": ""}, "^Must have a folder as draft, we instead got ''$"),
    ({"draft": [""]}, "a folder as draft, we instead got ''"),
    ({"drafts": {"rough": ""}}, "a folder as draft, we instead got ''"),
    ({"dtype": None}, "a dtype in float32"),
    ({"dtype": np.float16}, "a dtype in float32"),
    ({"draft": 3}, "a folder as draft, we instead got 3"),
    ({"draft": [None]}, "a folder as draft, we instead got None"),
    ({"drafts": ["rough"]}, "drafts by name"),
    ({"mesh": 3}, "a mesh such as data=2,model=4, we instead got 3"),
    ({"mesh": {"data": 1}}, "a mesh such as data=2,model=4"),
  ],
)
def test_what_loads_nothing(toys, kwargs, words):
  with pytest.raises(ValueError, match=words):
    load_pipeline(**({"path": toys} | kwargs))


def test_what_is_loaded(toys):
  for dtype in (np.float32, np.dtype("float32"), jax.numpy.float32):
    assert load_pipeline(str(toys), dtype=dtype).dtype == "float32"
  pipe = load_pipeline(toys, draft=iter([toys / "draft"]))
  assert list(pipe.drafts) == ["draft", "rough"]
  with pytest.raises(ValueError, match="Must have a SamplingConfig as sampling, we instead got {'top_k': 2}"):
    pipe([1], key=0, sampling={"top_k": 2})


def test_unknown_names_get_a_suggestion(toys):
  pipe = load_pipeline(toys)
  for call, words in (
    (lambda: pipe([1], key=0, topk=3), "we instead got topk: did you mean top_k"),
    (lambda: pipe([1], key=0, gamma=3), "we instead got gamma: options belong to the method"),
    (lambda: pipe.method("speculativ"), "did you mean speculative"),
    (lambda: pipe.method(3), "we instead got 3: jaxspec methods lists them"),
    (lambda: pipe.method("sjd", windw=3), "we instead got windw: did you mean window"),
    (lambda: pipe.method(Gsd(), groupsize=3), "we instead got groupsize: did you mean group_size"),
  ):
    with pytest.raises(ValueError, match=words):
      call()
