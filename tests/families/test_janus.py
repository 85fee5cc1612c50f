"""Janus-Pro as a family: prompts, images, tables, exactness of its methods, and mismatches."""

import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2_contingency
from tokenizers.processors import TemplateProcessing

from conversion import janus
from jaxspec import methods
from jaxspec.io import checkpoints
from jaxspec.io.text import janus_vocabulary
from jaxspec.io.text.language_tokenizer import load_tokenizer
from jaxspec.methods.method import SAME_FAMILY
from jaxspec.models.conditions import Prefixed, Prompt
from jaxspec.models.heads.eagle_head import EagleConfig
from jaxspec.models.janus import code_embeddings, null_prompt
from jaxspec.run.loading import load_pipeline
from jaxspec.sampling import SamplingConfig
from jaxspec.sampling.logit_processing import probabilities
from jaxspec.testing import assert_same_distribution
from tests.models import janus_golden as golden

PROMPTS = [text["prompt"] for text in golden.texts()]
# The two networks have little in common; hot and weakly guided, half of the drafts are accepted.
HOT = SamplingConfig(cfg_scale=2.0, temperature=3.0)
EXACT = {
  "speculative": methods.Speculative(gamma=3),
  "sjd": methods.Sjd(window=4),
  "sqs": methods.Sqs(max_drafts=3, sparsifier="topk", support=256, ell=4000, budget=float("inf")),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
  folder = tmp_path_factory.mktemp("janus")
  for name in ("target", "draft"):
    janus.convert_folder(golden.FOLDER / name, folder / name, golden.FIELDS)
  return {name: folder / name for name in ("target", "draft")}


@pytest.fixture(scope="module")
def pipe(folders):
  return load_pipeline(folders["target"], draft=folders["draft"])


@pytest.mark.slow
def test_prompts_have_the_official_form(pipe):
  """Outer blanks, an empty prompt, other scripts, line ends, names of special tokens; null partners too."""
  encoded = pipe.encode(PROMPTS)
  condition = encoded.condition
  rows = [tokens[mask].tolist() for tokens, mask in zip(condition.tokens, condition.mask)]
  assert rows == [text["ids"] for text in golden.texts()] and encoded.captions == PROMPTS
  null = null_prompt(pipe.family.target.config, condition)
  rows = [tokens[mask].tolist() for tokens, mask in zip(np.asarray(null.tokens), np.asarray(null.mask))]
  assert rows == [text["uncond_ids"] for text in golden.texts()]
  config = dataclasses.replace(pipe.family.target.config, user="User", assistant="Assistant")
  older = dataclasses.replace(pipe.family, target=dataclasses.replace(pipe.family.target, config=config))
  text = "User: a cat\n\nAssistant:<begin_of_image>"
  assert older.row_of("a cat")[1:] == pipe.family.text.encode(text, add_special_tokens=False).ids
  assert not pipe.warnings(pipe.decoder("ar"), condition)
  long = Prompt(np.zeros((1, 4090), np.int32), np.ones((1, 4090), bool))
  assert "up to 4096 tokens, this one gets 4090 tokens of text and 25" in pipe.warnings(pipe.decoder("ar"), long)[0]


def test_a_file_that_adds_the_beginning_does_not_add_it_twice(pipe, folders, tmp_path):
  copy = shutil.copytree(folders["target"], tmp_path / "copy")
  text = load_tokenizer(copy)
  begin = next(iter(janus_vocabulary._NAMES.values()))
  text.post_processor = TemplateProcessing(single=f"{begin} $A", special_tokens=[(begin, text.token_to_id(begin))])
  text.save(str(copy / "tokenizer.json"))
  assert load_pipeline(copy, tokenizer=pipe.family.tokenizer).family.row_of("a cat") == golden.texts()[0]["ids"]


def test_what_the_family_says(pipe):
  space = pipe.family.space
  assert (space.vocab_size, space.num_tokens, space.grid, space.legal, space.unit_codes) == (256, 25, (5, 5), None, True)
  assert pipe.sampling() == SamplingConfig(cfg_scale=5.0)
  assert pipe.default_method == "speculative" and pipe.family.noun == "image"
  target, vq = pipe.family.target, pipe.family.tokenizer
  np.testing.assert_array_equal(space.codebook(), vq.params["quantize"]["embedding"]["weight"])
  np.testing.assert_array_equal(space.embedding(), code_embeddings(target.config, target.params))
  assert space.embedding().shape == (256, 64)
  with pytest.raises(ValueError, match="cfg_interval -1"):
    pipe.sampling(cfg_interval=2)
  with pytest.raises(ValueError, match="all 25 tokens of an image, we instead got 24"):
    pipe.family.decode(np.zeros((1, 24), np.int32))


@pytest.mark.slow
def test_rows_of_a_batch_are_the_official_images(pipe):
  """Prompts of different lengths in one batch: every row is that of the prompt alone."""
  out = pipe(PROMPTS[:3], key=jax.random.key(0), method="ar", temperature=0.0)
  stored = golden.arrays("target")
  for row, run in enumerate(("greedy_cfg5", "greedy_cfg5_long")):
    np.testing.assert_array_equal(out.tokens[row], stored[f"{run}_tokens"][0])
    gap = np.abs(out.images[row].astype(int) - stored[f"{run}_image"][0])
    assert gap.max() <= 1 and np.mean(gap > 0) <= 1e-3


def _prompts(num):
  ids = golden.texts()[0]["ids"]
  return Prompt(np.repeat(np.asarray([ids], np.int32), num, axis=0), np.ones((num, len(ids)), bool))


def _bins(tokens, num=8):
  return np.asarray(tokens) % num


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_greedy_windows_are_greedy_decoding(pipe, name):
  plain, windows = (pipe(PROMPTS, key=1, method=method, temperature=0.0).tokens for method in ("ar", EXACT[name]))
  np.testing.assert_array_equal(windows, plain)


def _hot(pipe, method, seed):
  return pipe.decoder(method, sampling=HOT)(_prompts(4096), key=jax.random.key(seed), max_len=5)


@pytest.fixture(scope="module")
def expected(pipe):
  """The joint distribution ``[8, 8]`` of two codes modulo 8, and codes of plain decoding."""
  fns, side = HOT.side(pipe.target)
  with pipe.context():  # products are rounded as in the decode
    inputs = Prefixed(_prompts(256), np.arange(256, dtype=np.int32)[:, None])
    logits = jax.jit(lambda params: fns.apply(params, inputs, None, positions=None)[0].logits[:, -2:])(side.model)
  p = np.asarray(probabilities(pipe.decoder("ar", sampling=HOT).context.warp()(logits, side.sampling)), np.float64)
  first, second = p[0, 0], p[:, 1]
  joint = np.zeros((8, 8))
  np.add.at(joint, (np.arange(256)[:, None] % 8, np.arange(256)[None] % 8), first[:, None] * second)
  return joint, _hot(pipe, "ar", 2).tokens


@pytest.mark.slow
@pytest.mark.parametrize("name", ["speculative", "sjd"])
def test_methods_are_exact(pipe, expected, name):
  """Chi-square of guided codes: two against their joint distribution, and three inside of a window against plain decoding.

  Codes are counted modulo 8 and 4, so that every cell is full. The distribution sums over all 256 first codes.
  """
  out, (joint, plain) = _hot(pipe, EXACT[name], 1), expected
  accepted = out.counters.accepted.sum() / out.counters.drafted.sum()
  assert 0.2 < accepted < 0.9
  assert_same_distribution(_bins(out.tokens[:, :2]), joint)
  cells = [np.ravel_multi_index(tuple(_bins(tokens[:, 1:4], 4).T), (4, 4, 4)) for tokens in (out.tokens, plain)]
  counts = np.stack([np.bincount(found, minlength=64) for found in cells])
  assert counts.min() >= 5 and chi2_contingency(counts).pvalue > 0.01


def _changed_codes(folder, change):
  """The draft's folder with another codebook."""
  vq = checkpoints.load(folder / "vq")
  rows = change(vq.params["quantize"]["embedding"]["weight"])
  config = dataclasses.replace(vq.config, codebook_size=rows.shape[0])
  checkpoints.save(folder / "vq", config, vq.params | {"quantize": {"embedding": {"weight": rows}}})


def test_drafts_that_do_not_fit(pipe, folders, tmp_path):
  """Another vocabulary, other codes, another grid. Codes that are rounded otherwise fit."""
  folder = shutil.copytree(folders["draft"], tmp_path / "draft")
  check = lambda: pipe.family.check_fit(checkpoints.load(folder), SAME_FAMILY)
  _changed_codes(folder, lambda rows: rows[::-1])
  with pytest.raises(ValueError, match="vq does not fit the target: its codes differ by up to"):
    check()
  _changed_codes(folder, lambda rows: jnp.concatenate([rows, rows]))
  with pytest.raises(ValueError, match=r"codes \[512, 8\], not \[256, 8\]"):
    check()
  shutil.rmtree(folder / "vq")
  check()  # only the target's image tokenizer draws
  shutil.copytree(folders["draft"] / "vq", folder / "vq")
  _changed_codes(folder, lambda rows: rows * (1 + 2**-9))
  check()
  text = folder / "tokenizer.json"
  whole = text.read_text()
  text.write_text(whole.replace('"<end_of_image>"', '"<other>"'))
  with pytest.raises(ValueError, match="its tokenizer has other tokens"):
    check()
  text.write_text(whole)
  network = checkpoints.load(folder)
  for fields, words in ((dict(rows=4), "rows 4 instead of 5"), (dict(pad=5), "pad 5 instead of 402")):
    other = dataclasses.replace(network, config=dataclasses.replace(network.config, **fields))
    with pytest.raises(ValueError, match=f"does not fit the target: {words}"):
      pipe.family.check_fit(other, SAME_FAMILY)


def test_parts_that_do_not_fit(pipe, folders, tmp_path):
  folder = shutil.copytree(folders["draft"], tmp_path / "draft")
  shutil.rmtree(folder / "vq")
  with pytest.raises(ValueError, match="a part 'tokenizer'"):
    load_pipeline(folder)
  with pytest.raises(ValueError, match="an image tokenizer, .* holds a janus"):
    load_pipeline(folder, tokenizer=folder)
  (folder / "tokenizer.json").unlink()
  with pytest.raises(ValueError, match="No tokenizer.json"):
    load_pipeline(folder)
  family, config = pipe.family, pipe.family.target.config
  with pytest.raises(ValueError, match="its tokenizer has pad 402, its network 7"):
    dataclasses.replace(family, target=dataclasses.replace(family.target, config=dataclasses.replace(config, pad=7)))
  with pytest.raises(ValueError, match="draws from 300 codes but .* has only 256"):
    family.check_parts(300, 448, {})


def test_heads_are_refused(pipe, folders, tmp_path):
  """The output is an MLP: a head has no matrix to borrow."""
  config = checkpoints.load(folders["target"], weights=False).config
  with pytest.raises(ValueError, match="a network that heads can be put on .*, we instead got a JanusConfig"):
    EagleConfig.of(config)
  for name in ("eagle", "eagle-chain", "ciar"):
    with pytest.raises(ValueError) as caught:
      pipe.decoder(name)
    assert "\n" not in str(caught.value) and "draft" in str(caught.value)
