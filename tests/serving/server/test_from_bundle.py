"""A server of a bundle: texts, classes and captions, and what cannot be served."""

import functools
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import jaxspec
from conversion import emu3
from jaxspec.cli.serve import _method
from jaxspec.core.token_kinds import CONTINUOUS
from jaxspec.core.token_space import TokenSpace
from jaxspec.io import checkpoints
from jaxspec.methods import Ciar, Plain, Speculative, Sqs
from jaxspec.models.conditions import Prompt
from jaxspec.run.loading import load_pipeline
from jaxspec.serving.edge.edge_stream import Edge
from jaxspec.serving.edge.remote_decode import RemoteOptions, decode_over_cloud
from jaxspec.serving.server import from_bundle
from jaxspec.serving.server.in_process import LocalCloud
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.wire.method_codecs import codec_of
from tests.cli import fake_bundle, fake_language
from tests.models import emu3_golden
from tests.run import tiny_chameleon

SIZES = dict(max_streams=2, max_rows=2, widths=(8,))
LAZY = Sqs(coding="lazy", sparsifier="topk", support=4, max_drafts=4)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
  return load_pipeline(fake_language.make(tmp_path_factory.mktemp("language")), matmul_precision="float32")


@pytest.fixture(scope="module")
def captions(tmp_path_factory):
  return load_pipeline(fake_bundle.make_fake_bundle(tmp_path_factory.mktemp("captions"), cfg_scale=2.0, top_k=0))


def over(cloud, pipeline, method, encoded, max_len, profile, captions=None, **options):
  """A decode of two rows by a method of the pipeline, and the tokens of its one program."""
  method = pipeline.method(method)
  decoder = pipeline.decoder(method)
  codec, sampling = codec_of(method, pipeline.family.space.vocab_size), decoder.sampling
  options |= dict(temperature=sampling.temperature, cfg_scale=sampling.cfg_scale, end_token=pipeline.family.end_token)
  with pipeline.context():
    edge = Edge(decoder.parts.params.draft, decoder.parts.drafter, codec, max_len, profile=profile, **options)
    out, _ = decode_over_cloud(edge, jax.random.key(3), encoded.condition, cloud, RemoteOptions(captions))
  wanted = pipeline(encoded, key=jax.random.key(3), method=method, max_len=max_len, sampling=sampling)
  np.testing.assert_array_equal(out.tokens, wanted.tokens)


@pytest.mark.slow
def test_texts_over_a_socket(texts):
  """The tokens of the pipeline, with drafts and without."""
  pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")
  with jaxspec.serve(texts, methods=[LAZY, "ar"], max_prompt=8, max_len=12, **SIZES) as server:
    cloud = jaxspec.connect(server.address)
    served = cloud.description
    assert (served.max_len, served.max_condition, served.end_ids) == (12, 8, fake_language.TARGET.end_ids)
    encoded = texts.encode(["once", "on a"])
    over(cloud, texts, LAZY, encoded, 12, 0)
    over(cloud, texts, Plain(), encoded, 12, 1)
    cloud.hang_up()


@pytest.mark.slow
def test_products_that_round(tmp_path):
  """Rows are stored rounded, in the table as in the caches that are put into it; 8 + 16 + 8 leaves no spare slot."""
  pipeline = load_pipeline(fake_language.make(tmp_path), matmul_precision="bfloat16")
  cloud = LocalCloud(from_bundle.engine_of(pipeline, [LAZY], max_prompt=8, max_len=16, **SIZES))
  over(cloud, pipeline, LAZY, pipeline.encode(["once", "on a"]), 16, 0)


@pytest.mark.slow
def test_captions_with_guidance(captions):
  """The text of a caption is sent, and encoded by the server."""
  cloud = LocalCloud(from_bundle.engine_of(captions, [LAZY], **SIZES))
  (profile,), words = cloud.description.profiles, ["red apple", "cat on blue"]
  assert profile.guided and cloud.description.max_len == fake_bundle.TARGET.num_tokens
  encoded = captions.encode(words)
  over(cloud, captions, LAZY, encoded, 16, 0, captions=words)


@pytest.mark.slow
def test_prompts_whose_ids_are_not_drawn(tmp_path):
  """Lumina-mGPT, guided: the server encodes the text; row ends are forced on both sides."""
  folders = tiny_chameleon.networks(tmp_path)
  pipeline = load_pipeline(folders["lumina"], draft=folders["rows"], matmul_precision="float32")
  cloud, words = LocalCloud(from_bundle.engine_of(pipeline, [LAZY], **SIZES)), ["a red fox", "é"]
  (profile,) = cloud.description.profiles
  assert profile.guided and cloud.description.vocab == 18 and cloud.description.max_len == 12
  over(cloud, pipeline, LAZY, pipeline.encode(words), 12, 0, captions=words)


@pytest.mark.slow
def test_prompts_with_a_negative_one(tmp_path):
  """Emu3, guided: prompts are compiled in the lengths that have slots for the negative prompt."""
  negative = "lowres, blurry."
  folder = emu3_golden.convert(tmp_path, ratio="1:2", area=32, negative=negative)
  small, sides = emu3_golden.write_small(tmp_path / "small"), {"rows": 4, "columns": 2}
  emu3.convert_folder(small, tmp_path / "draft", sides, dtype="float32", negative=negative)
  pipeline = load_pipeline(folder, draft=tmp_path / "draft", matmul_precision="float32")
  engine, words = from_bundle.engine_of(pipeline, [LAZY], **SIZES), ["a red fox", "é"]
  least = pipeline.family.fewest_slots
  lengths = [each.tokens.shape[1] for each in engine.programs.conditions()]
  assert least > 8 and lengths == [length for length in (16, 32, 64, 128) if length >= least]
  over(LocalCloud(engine), pipeline, LAZY, pipeline.encode(words), 12, 0, captions=words)
  with pytest.raises(ValueError, match=f"max_prompt of at least {least} for .*emu3, we instead got 8"):
    from_bundle.engine_of(pipeline, [LAZY], max_prompt=8, **SIZES)


def test_longest_text():
  """A prompt of many tokens is not refused for its bytes."""
  of = lambda tokens: from_bundle._text_bytes(Prompt(np.zeros((1, tokens), np.int32), np.ones((1, tokens), bool)))
  assert of(8) == 1000 and of(1000) == 8000


@pytest.mark.slow
def test_what_a_network_is_served_with(texts, captions, monkeypatch):
  """Settings of an engine, without compilation."""
  made = {}

  def make(params, model, profiles, *, settings, **parts):
    made.update(parts, **vars(settings), profiles=profiles)

  monkeypatch.setattr(from_bundle, "Engine", make)
  from_bundle.engine_of(texts)
  assert made["max_len"] == 24 == made["example"].tokens.shape[1] and made["end_ids"] == fake_language.TARGET.end_ids
  assert made["profiles"] == [ServedProfile(codec_of(method, texts.family.space.vocab_size)) for method in (Sqs(), Plain())]
  assert (made["digest"], made["matmul_precision"]) == (checkpoints.digest(texts.family.target.folder), "float32")
  from_bundle.engine_of(captions, [Plain()])
  assert made["max_len"] == 16 and made["max_condition"] == 1000
  profile = _method("ciar:verify=greedy")
  from_bundle.engine_of(captions, [profile, "ciar"])
  edge = captions.method("ciar", verify="greedy")
  assert edge.gamma == fake_bundle.DEFAULTS["gamma"] != Ciar().gamma, "the bundle's, which neither side has given"
  assert [profile.codec for profile in made["profiles"]] == [codec_of(each, 16) for each in (edge, captions.method("ciar"))]
  assert made["read_condition"]("red cat").features.shape == made["example"].features.shape
  for sent in (3, (1, 2)):
    with pytest.raises(ValueError, match="Must have the text of a prompt"):
      made["read_condition"](sent)


def test_what_cannot_be_served(texts, captions):
  serve = functools.partial(from_bundle.engine_of, texts)
  bare = load_pipeline(texts.family.target.path.parent, target_weights=False)
  vectors = SimpleNamespace(name="latents", family=SimpleNamespace(space=TokenSpace(CONTINUOUS)), target=None)
  for call, words in (
    (lambda: from_bundle.engine_of(vectors), "a network of discrete tokens to serve it, latents draws continuous tokens"),
    (lambda: serve([Speculative()]), "sqs, ciar, ar"),
    (lambda: serve([Ciar(verify="lantern")]), "verify greedy, or exact"),
    (lambda: serve([Ciar(inject="both")]), "without interval features"),
    (lambda: serve(["nothing"]), "nothing"),
    (lambda: serve("sqs"), "a list of methods, we instead got 'sqs'"),
    (lambda: serve(Sqs()), "a list of methods, we instead got Sqs"),
    (lambda: serve(max_decode_ms=float("nan")), "a positive max_decode_ms, we instead got nan"),
    (lambda: serve([Sqs(coding="paper", max_drafts=6)], max_decode_ms=1e-3), "within 0.001 ms.* ms for method=sqs"),
    (lambda: serve(max_prompt=40, max_len=9), "at most 48 tokens"),
    (lambda: from_bundle.engine_of(bare), "target's weights to decode here"),
    (lambda: from_bundle.engine_of(captions, max_prompt=4), "networks that read prompts as text"),
  ):
    with pytest.raises(ValueError, match=words):
      call()


@pytest.mark.parametrize(
  "options, words",
  [
    (dict(), "256 streams of .* fewer --max-streams"),
    (dict(max_prompt=(1 << 31) - 1), "Must have max_len with a max_prompt"),
    (dict(widths=(7,)), "ascending widths from 8 on"),
    (dict(max_wait_s=float("inf")), "a finite max_wait_s, we instead got inf"),
    (dict(idle_s=0), "idle_s above 0"),
    (dict(methods=["sqs"], widths=(8, 16)), "a width of at least"),
  ],
)
def test_sizes_are_refused_before_weights_are_read(tmp_path, monkeypatch, options, words):
  pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")
  monkeypatch.setattr("jaxspec.serving.server.server_programs.available_bytes", lambda: 1000)
  folder = fake_language.make(tmp_path / "language")
  for file in folder.rglob(checkpoints.PARAMS_FILE):
    file.unlink()
  with pytest.raises(ValueError, match=words):
    jaxspec.serve(folder, **options)
