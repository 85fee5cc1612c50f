"""Pipelines: a user-defined family, converted folders, defaults of bundles, and errors."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxspec import methods
from jaxspec.core import precision, rng
from jaxspec.io.shipped import BUNDLES, VARIABLE, default_bundle, named, shipped
from jaxspec.methods import Ciar, Cspd, Eagle, Gsd, Plain, Speculative
from jaxspec.models.conditions import ClassLabels
from jaxspec.run.batches import make_batches
from jaxspec.run.loading import load_pipeline
from jaxspec.run.rounds import rounds
from jaxspec.run.run import run
from jaxspec.sampling import ContinuousSampling, SamplingConfig
from tests.run import toy

KEY = jax.random.key(0)


@pytest.mark.slow
def test_a_family_of_your_own_generates_from_its_folder(toys):
  pipe = load_pipeline(toys)
  assert pipe.default_method == "speculative" and pipe.default_draft(Speculative) == "rough"
  out = pipe([2, 0], key=KEY)
  assert out.method == Speculative(draft="rough", gamma=2) and out.captions == ["after 2", "after 0"]
  assert out.warnings == ["The draft rough was trained for cfg_scale 3: at 1 fewer of its tokens may be accepted"]
  assert out.tokens.tolist() == [[0, 1, 2, 0], [1, 2, 0, 1]] and out.lengths.tolist() == [4, 4]
  assert out.images.shape == (2, 1, 4, 3) and out.images.dtype == np.uint8 and out.texts is None
  np.testing.assert_array_equal(out.images[0, 0], np.asarray(toy.PALETTE)[[0, 1, 2, 0]])
  assert (out.counters.accepted + out.counters.target_calls).tolist() == [4, 4]
  assert isinstance(out.counters.rounds, np.ndarray) and out.result.tokens.shape == (2, 4)


@pytest.mark.parametrize("key", [7, np.int64(7)])
def test_a_seed_is_a_key_and_the_seed_of_the_command_line(toys, key):
  pipe, kwargs = load_pipeline(toys), dict(method="ar", temperature=100.0)
  expected = pipe([1, 2], key=jax.random.key(7), **kwargs).tokens
  np.testing.assert_array_equal(pipe([1, 2], key=key, **kwargs).tokens, expected)
  batches = make_batches(ClassLabels(np.asarray([1, 2], np.int32)), samples=2, seed=7, rows=4)
  np.testing.assert_array_equal(rng.row_key_data(key, 2), batches.key_data[0][::2])
  assert len(set(map(tuple, np.asarray(batches.key_data[0]).tolist()))) == 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rbg", "unsafe_rbg"])
def test_keys_of_other_generators_give_rows_of_their_own(toys, kind):
  pipe, kwargs = load_pipeline(toys), dict(method="ar", temperature=100.0)
  keys = jax.vmap(lambda seed: jax.random.key(seed, impl=kind))(np.arange(6))
  rows = pipe([1] * 6, key=keys, **kwargs).tokens
  assert len(set(map(tuple, rows.tolist()))) > 3
  for row in (0, 4):
    np.testing.assert_array_equal(pipe([1], key=keys[row : row + 1], **kwargs).tokens[0], rows[row])
  assert pipe([1, 2], key=jax.random.key(3, impl=kind), **kwargs).tokens.shape == (2, 4)


def test_representations_are_short(toys):
  pipe = load_pipeline(toys)
  out = pipe([1, 2], key=0)
  for value in (pipe, out, out.result, pipe.target, pipe.decoder()):
    assert len(repr(value)) < 700, type(value)
  assert repr(out) == "<Generation: 2 images by speculative, tokens [2, 4]; .images .tokens .counters .result>"


def test_what_jax_is_told_about_products_wins(toys):
  with jax.default_matmul_precision(None):
    assert load_pipeline(toys).matmul_precision == precision.preferred("float32")
  for told, expected in {"highest": "float32", "bfloat16": "bfloat16", "tensorfloat32": "tensorfloat32"}.items():
    with jax.default_matmul_precision(told):
      assert load_pipeline(toys).matmul_precision == expected
      assert load_pipeline(toys, matmul_precision="float32").matmul_precision == "float32"


def test_rows_depend_on_their_own_key(toys):
  """One key is folded with the row's number; row keys and conditions are used unchanged; temperatures share a program."""
  pipe = load_pipeline(toys, draft=None)
  kwargs = dict(method="ar", sampling=SamplingConfig(temperature=100.0))
  whole = pipe([2, 0, 1], key=KEY, **kwargs)
  keys = jax.vmap(lambda row: jax.random.fold_in(KEY, row))(np.arange(3))
  same = pipe(ClassLabels(np.asarray([2, 0, 1], np.int32)), key=keys, **kwargs)
  np.testing.assert_array_equal(whole.tokens, same.tokens)
  assert same.captions == ["row 0", "row 1", "row 2"]
  assert len(set(map(tuple, whole.tokens.tolist()))) == 3
  pipe(pipe.encode([2, 0, 1]), key=KEY, method="ar", temperature=0.5)
  assert len(pipe.programs) == 1 and len(pipe._decoders) == 2
  short = dataclasses.replace(whole, by_batch=[whole.result._replace(lengths=np.asarray([4, 2, 4]))])
  assert short.images is None and whole.images.shape == (3, 1, 4, 3)
  for max_len, words in ((5, "at most the 4 tokens of an image"), (0, "at least 1 as max_len")):
    with pytest.raises(ValueError, match=words):
      pipe([2], key=KEY, max_len=max_len, **kwargs)
  with pytest.raises(ValueError, match="one key or 3 row keys"):
    pipe([2, 0, 1], key=keys[:2], **kwargs)


def test_a_draft_alone(toys):
  pipe = load_pipeline(toys)
  alone = pipe.alone("rough")
  assert alone.default_method == "ar" and alone.name.endswith("/rough") and not alone.drafts
  assert alone.target.params is pipe.drafts["rough"].params and alone.family.palette.shape == (3, 3)
  with pytest.raises(ValueError, match="a draft in rough, we instead got 'smooth'"):
    pipe.alone("smooth")


def test_drafts_from_elsewhere(toys, tmp_path):
  exact = toy.save(tmp_path / "exact", 40.0 * np.roll(np.eye(3), 1, axis=1))
  pipe = load_pipeline(toys, draft=exact, drafts={"again": exact})
  assert list(pipe.drafts) == ["exact", "again", "rough"] and pipe.default_draft(Speculative) == "exact"
  again = pipe.decoder(pipe.method(draft="again"))
  assert again.drafting is pipe.drafts["again"] and not pipe.warnings(again, pipe.encode([2]).condition)
  with pytest.raises(ValueError, match="drafts of different names, we instead got two of 'exact'"):
    load_pipeline(toys, draft=[exact, exact])
  own = dataclasses.replace(pipe.drafts["exact"], name="mine")
  assert pipe.decoder(Speculative(draft=own, gamma=2)).drafting is own
  alone = load_pipeline(toys / "target", palette=toy.PALETTE)
  assert alone.default_method == "ar" and alone.methods() == [
    name
    for name, cls in methods.METHODS.items()
    if cls.fits(methods.DISCRETE) and cls.draft_family is None and not cls.needs_grid
  ]
  with pytest.raises(ValueError, match="a draft for method speculative, target has none: use method ar"):
    alone.method("speculative")


@pytest.mark.slow
def test_converted_networks(classes):
  """Class numbers in, pixels out; the published settings apply."""
  pipe = load_pipeline(classes / "target", tokenizer=classes / "vq", draft=classes / "draft")
  assert pipe.sampling() == SamplingConfig(cfg_scale=4.0, top_k=2000) and pipe.default_method == "speculative"
  out = pipe([4, 1], key=KEY, method="ar", cfg_scale=1.0, top_k=0)
  assert out.method == Plain() and out.sampling == SamplingConfig() and out.captions == ["class 4", "class 1"]
  assert out.tokens.shape == (2, 4) and out.counters.target_calls.tolist() == [4, 4]
  assert out.images.shape == (2, 8, 8, 3) and out.images.dtype == np.uint8


@pytest.mark.slow
def test_greedy_speculation_is_greedy_decoding(classes):
  pipe = load_pipeline(classes / "target", tokenizer=classes / "vq", draft=classes / "draft")
  out = pipe([4, 1], key=KEY, method=Speculative(gamma=2), temperature=0.0)
  plain = pipe([4, 1], key=KEY, method=Plain(), temperature=0.0)
  np.testing.assert_array_equal(out.tokens, plain.tokens)
  np.testing.assert_array_equal(out.images, plain.images)
  assert out.method == Speculative(draft="draft", gamma=2) and plain.method == Plain()


def test_converted_networks_need_their_parts(classes, captions, tmp_path, monkeypatch):
  for kwargs, words in (
    ({}, "a part 'tokenizer'"),
    ({"tokenizer": ""}, "a path as part 'tokenizer' of "),
    ({"tokenizer": classes / "draft"}, "an image tokenizer"),
    ({"tokenizer": classes / "vq", "vae": classes / "vq"}, "we instead got vae"),
    ({"tokenizer": classes / "vq", "dtype": "int8"}, "a dtype in float32, bfloat16"),
    ({"tokenizer": classes / "vq", "matmul_precision": "half"}, "a precision in float32, bfloat16"),
  ):
    with pytest.raises(ValueError) as caught:
      load_pipeline(classes / "target", **kwargs)
    assert words in str(caught.value)
  with pytest.raises(ValueError, match="a network that generates .* holds a patch_vq"):
    load_pipeline(classes / "vq")
  misfit = load_pipeline(classes / "target", tokenizer=classes / "vq", draft=captions / "draft")
  with pytest.raises(ValueError, match="does not fit the target: model_type t2i instead of c2i"):
    misfit.decoder(Speculative(gamma=2))
  monkeypatch.chdir(classes)  # base of relative folders
  assert load_pipeline("target", tokenizer="vq", dtype="bfloat16").target.config.dtype == "bfloat16"
  text = load_pipeline(captions / "target", tokenizer=captions / "tokenizer", text=captions / "text",
                       vocabulary=captions / "vocabulary.json")  # fmt: skip
  assert text.encode("a red apple").condition.batch_size == 1
  features = load_pipeline(captions / "target", tokenizer=captions / "tokenizer")
  assert features.sampling().cfg_scale == 7.5


def test_defaults_of_a_bundle(captions):
  pipe = load_pipeline(captions)
  assert pipe.name == "tiny" and pipe.default_method == "speculative" and not pipe.drafts._networks
  assert pipe.method() == Speculative(draft="small", gamma=2)
  assert pipe.method("eagle") == Eagle(draft="feature", tree_size=3)
  assert pipe.method("ciar") == Ciar(draft="edge", gamma=2, early_close=True)
  assert pipe.method("lantern").draft == "small" and pipe.method("ar") == Plain()
  assert pipe.method("speculative", gamma=3, draft="distilled") == Speculative(draft="distilled", gamma=3)
  assert pipe.method(Speculative(gamma=3)) == Speculative(draft="small", gamma=3)
  assert pipe.method(Gsd(group_size=5), window=3) == Gsd(group_size=5, window=3)
  assert pipe.sampling() == SamplingConfig(top_k=6) and pipe.sampling(top_k=0).top_k == 0
  fits = [name for name, cls in methods.METHODS.items() if cls.fits(methods.DISCRETE)]
  assert pipe.methods() == [name for name in fits if name not in ("block-head", "spatial")]  # the bundle has no such heads
  assert pipe.matmul_precision == "float32" and not pipe.drafts._networks
  assert "small" in pipe.drafts and "huge" not in pipe.drafts and pipe.drafts.get("huge") is None
  assert pipe.decoder() is pipe.decoder("speculative") is pipe.decoder(top_k=6)
  assert list(pipe.drafts._networks) == ["small"]
  found = pipe.warnings(pipe.decoder(pipe.method(draft="distilled"), cfg_scale=2.0), pipe.encode(["cat"]).condition)
  assert found == ["The draft distilled was trained for cfg_scale 4: at 2 fewer of its tokens may be accepted"]


@pytest.mark.parametrize(
  ("call", "words"),
  [
    (lambda p: p.method("magic"), "a method in ar, speculative"),
    (lambda p: p.method("cspd"), "a method that draws discrete tokens, we instead got cspd"),
    (lambda p: p.method(Cspd()), "a method that draws discrete tokens"),
    (lambda p: p.method("speculative", gama=3), "we instead got gama"),
    (lambda p: p.method(Speculative(), gama=3), "options that method speculative declares, we instead got gama"),
    (lambda p: p.method("speculative", gamma=0), "gamma of at least 1"),
    (lambda p: p.method("speculative", draft="huge"), "a draft in small, distilled, feature, edge, we instead got 'huge'"),
    (lambda p: p.method("ar", draft="small"), "no draft with method ar, we instead got 'small'"),
    (
      lambda p: p.decoder(Speculative(draft="feature", gamma=2)),
      r"family llamagen as draft of speculative, we instead got feature \(for eagle",
    ),
    (lambda p: p.decoder(Eagle(draft="small", tree_size=3)), "family eagle as draft"),
    (lambda p: p.decoder("speculative", gamma=3), "sampling settings in cfg_scale, .*, we instead got gamma"),
    (lambda p: p.decoder(temperature=-1), "temperature of at least 0"),
    (lambda p: p.decoder(sampling=SamplingConfig(), temperature=1), "either sampling or single settings"),
    (lambda p: p.decoder(Speculative(gamma=4)), "gamma below the 4 tokens"),
    (lambda p: p([], key=KEY), "at least one prompt"),
  ],
)
def test_what_does_not_fit(captions, call, words):
  with pytest.raises(ValueError, match=words) as caught:
    call(load_pipeline(captions))
  assert "\n" not in str(caught.value)


def test_language_models(texts):
  """A draft of another family; texts that are too long."""
  pipe = load_pipeline(texts)
  assert pipe.default_method == "speculative" and list(pipe.drafts) == ["draft"]
  decoder, condition = pipe.decoder(), pipe.encode(["once upon", "é"]).condition
  space = decoder.context.space
  assert space.num_tokens is None and space.codebook is None and space.embedding().shape[1] == 16
  assert pipe.warnings(decoder, condition, 10) == []
  assert pipe.warnings(decoder, condition, 11) == [
    "The draft draft was trained on texts of up to 16 tokens, this one may get 6 tokens of text and 11 more"
  ]
  with pytest.raises(ValueError, match="at most 48 tokens for the target"):
    pipe(["once upon"], key=KEY)  # 64 by default
  with pytest.raises(ValueError, match="the codebook of the image tokenizer for method lantern"):
    pipe(["once"], key=KEY, max_len=4, method="lantern")


@pytest.mark.slow
def test_texts(texts):
  """Texts begin with their prompts and end at their end token."""
  pipe = load_pipeline(texts)
  out = pipe(["once upon", "é"], key=KEY, max_len=8, temperature=0.0, method=Speculative(gamma=3))
  assert out.tokens.shape == (2, 8) and out.images is None and (out.lengths <= 8).all()
  assert [text.startswith(prompt) for text, prompt in zip(out.texts, out.captions)] == [True, True]
  hot = pipe(["on"] * 8, key=KEY, max_len=40, temperature=9.0, method="ar")
  (end,) = pipe.family.end_token
  for row, length in zip(hot.tokens, hot.lengths):
    assert end not in row[: length - 1] and not row[length:].any() and (length == 40 or row[length - 1] == end)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["masked", "causal"])
def test_vectors(kind, request):
  """From class names to pixels by every method that drafts or has no rounds; plain decodes of some tokens, and refined."""
  pipe = load_pipeline(request.getfixturevalue(kind))
  names, kwargs = ["animal-bird", "food-fruit"], dict(key=KEY, steps="ddim5")
  for method in [name for name in pipe.methods() if name != "ar"]:
    if kind == "causal" and method == "parallel":
      with pytest.raises(ValueError, match="a masked network"):
        pipe(names, **kwargs, method=method)
      continue
    out = pipe(names, **kwargs, method=method)
    assert out.tokens.shape == (2, 4, 2) and out.images.shape == (2, 4, 4, 3) and out.captions == names
    assert np.isfinite(out.tokens).all() and out.result.origin.shape == (2, 4)
  if kind == "masked":  # with rows padded and in raster order
    short = pipe(names, **kwargs, method="ar", max_len=2)
    assert ((short.tokens != 0).all(axis=2).sum(axis=1) == 2).all() and short.images is None
  else:
    noisy, clean = (pipe(names, **kwargs, method="ar", stop=1, refine=refine) for refine in (False, True))
    assert np.abs(noisy.tokens - clean.tokens).max() > 1e-3 and np.isfinite(clean.images).all()


def test_settings_of_vectors(masked, causal):
  pipe = load_pipeline(causal)
  assert pipe.sampling() == ContinuousSampling(5) and pipe.method() == Cspd(draft="small", gamma=2)
  assert {"ar", "cspd", "parallel"} <= set(pipe.methods()) and not {"sjd", "scale-ciar"} & set(pipe.methods())
  assert pipe.matmul_precision == "float32"
  with pytest.raises(ValueError, match="a method that draws continuous tokens, we instead got sjd"):
    pipe.method("sjd")
  with pytest.raises(ValueError, match="gamma below the 4 tokens"):
    pipe.decoder(Cspd(gamma=4))
  with pytest.raises(ValueError, match="sampling settings in steps, stop"):
    pipe.sampling(top_k=3)
  numbers = load_pipeline(masked / "target", vae=masked / "vae", latent_scale=0.25)
  assert numbers.encode([2, 0]).captions == ["class 2", "class 0"] and numbers.family.latent_scale == 0.25
  assert numbers.default_method == "ar" and numbers.sampling() == ContinuousSampling()
  with pytest.raises(ValueError, match="of the family causal_tokens as draft, .*draft holds a mar"):
    load_pipeline(causal, draft=masked / "draft")


def test_names_stand_for_shipped_folders(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  assert named("digits32-mar") == shipped("digits32-mar") and all(named(name) == shipped(name) for name in BUNDLES)
  assert str(named("elsewhere")) == "elsewhere" and str(named("a/digits32-mar")) == "a/digits32-mar"
  (tmp_path / "digits32-mar").mkdir()
  assert str(named("digits32-mar")) == "digits32-mar"
  with pytest.raises(ValueError, match="not a bundle"):
    load_pipeline("digits32-mar")
  with pytest.raises(ValueError, match="No checkpoint folder at elsewhere"):
    load_pipeline("elsewhere")


def test_the_default_bundle(captions, monkeypatch):
  monkeypatch.delenv(VARIABLE, raising=False)
  assert default_bundle() == shipped("scenes")
  monkeypatch.setenv(VARIABLE, str(captions))
  assert load_pipeline().name == "tiny"
  monkeypatch.setenv(VARIABLE, "wordnet")
  assert load_pipeline().name == "wordnet"


@pytest.mark.slow
@pytest.mark.parametrize("bundle, prompt, sampling", [("captions", "red apple", {}), ("causal", 1, {"steps": "ddim5"})])
def test_rounds_end_with_the_result_of_the_program(request, bundle, prompt, sampling):
  """Tokens only grow from round to round, and the last finished result equals that of one program."""
  pipe = load_pipeline(request.getfixturevalue(bundle), matmul_precision="float32")
  job = pipe.job([prompt], seed=5, **sampling)
  batches = job.batches(1)
  lengths = []
  for found, finish in rounds(job, batches):
    lengths.append(int(found.lengths[0]))
    last = jax.device_get(finish())
  assert lengths == sorted(lengths) and len(lengths) == int(last.counters.rounds[0]) + 1
  wanted = run(job, batches)
  np.testing.assert_allclose(last.tokens, wanted.tokens, atol=1e-5)
  np.testing.assert_array_equal(last.origin, wanted.result.origin)
