"""Anole and Lumina-mGPT as families: prompts, images, tables, and mismatches."""

import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec import methods
from jaxspec.io.checkpoints import load
from jaxspec.io.text import image_vocabulary
from jaxspec.io.text.language_tokenizer import from_json
from jaxspec.models.conditions import Prompt
from jaxspec.models.tokenizers.tokenizer_fns import truncate_to_uint8
from jaxspec.run.loading import load_pipeline
from jaxspec.sampling import SamplingConfig
from tests.families.row_ends import EXACT, PROMPTS, check_distribution, check_greedy, joint_across_rows
from tests.run import tiny_chameleon
from tests.run.tiny_chameleon import DISCRETE


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
  return tiny_chameleon.networks(tmp_path_factory.mktemp("chameleon"))


@pytest.fixture(scope="module")
def anole(folders):
  return load_pipeline(folders["anole"], draft=folders["draft"])


@pytest.fixture(scope="module")
def lumina(folders, tmp_path_factory):
  heads = tiny_chameleon.save_heads(tmp_path_factory.mktemp("heads"), folders["lumina"])
  return load_pipeline(folders["lumina"], drafts={"small": folders["rows"], **heads})


def _text(pipe, text):
  return pipe.family.text.encode(text, add_special_tokens=False).ids


def test_prompts_have_the_official_form(anole, lumina):
  encoded = anole.encode(PROMPTS)
  assert isinstance(encoded.condition, Prompt) and encoded.captions == PROMPTS
  rows = [tokens[mask].tolist() for tokens, mask in zip(encoded.condition.tokens, encoded.condition.mask)]
  assert rows == [[0, *_text(anole, text), DISCRETE["end_prompt"], DISCRETE["begin_image"]] for text in PROMPTS]
  text = "Generate an image of 4x8 according to the following prompt:\na red fox"
  sizes = [DISCRETE["first_size"] + 2, DISCRETE["first_size"] + 1]  # height, width
  prompt = lumina.encode("a red fox").condition
  row = prompt.tokens[prompt.mask].tolist()
  assert row == [0, *_text(lumina, text), DISCRETE["end_prompt"], DISCRETE["begin_image"], *sizes]
  with pytest.raises(ValueError, match="a token in every prompt, prompt 2 is ''"):
    anole.encode(["a", ""])
  condition = encoded.condition
  assert not anole.warnings(anole.decoder("ar"), condition)
  long = condition._replace(tokens=np.zeros((1, 4090), np.int32), mask=np.ones((1, 4090), bool))
  assert "up to 4096 tokens, this one gets 4090 tokens of text and 16" in anole.warnings(anole.decoder("ar"), long)[0]


def test_what_the_families_say(anole, lumina):
  space = anole.family.space
  assert (space.vocab_size, space.num_tokens, space.grid, space.legal) == (16, 16, (4, 4), None)
  space = lumina.family.space
  assert (space.vocab_size, space.num_tokens, space.grid, space.unit_codes) == (18, 12, (4, 3), False)
  assert anole.sampling() == SamplingConfig(cfg_scale=3.0, temperature=0.7, top_p=0.9)
  assert lumina.sampling() == SamplingConfig(cfg_scale=3.0, top_k=2000)
  assert lumina.default_method == "speculative" and lumina.family.noun == "image"
  assert lumina.target.params["lm_head"]["weight"].shape == (18, 16)
  tables = {name: np.asarray(getattr(space, name)()) for name in ("embedding", "codebook")}
  params = lumina.family.target.params
  np.testing.assert_array_equal(tables["embedding"][:16], params["embed_tokens"]["weight"][4:20])
  np.testing.assert_array_equal(tables["embedding"][16], params["embed_tokens"]["weight"][DISCRETE["end_row"]])
  assert tables["codebook"].shape == (18, 4) and not tables["codebook"][16:].any()
  context = lumina.decoder(methods.Gsd(window=3)).context
  assert context.space == space and context.warp().legal == space.legal
  _, distances = methods.Gsd().rule(context)
  gap = tables["codebook"][3] - tables["codebook"][5]
  np.testing.assert_allclose(distances.values[3, 5], np.sum(gap**2), rtol=1e-5)
  with pytest.raises(ValueError, match="cfg_interval -1"):
    anole.sampling(cfg_interval=2)


@pytest.mark.slow
def test_tokens_become_images(lumina):
  vq = lumina.family.tokenizer
  codes = np.arange(8, dtype=np.int32)[None]
  tokens = np.concatenate([codes.reshape(1, 4, 2), np.full((1, 4, 1), 16, np.int32)], axis=2).reshape(1, -1)
  images = lumina.family.decode(tokens)
  assert images.shape == (1, 8, 4, 3) and images.dtype == np.uint8
  expected = truncate_to_uint8(jax.jit(lambda p, c: vq.fns.decode(p, c, (4, 2)))(vq.params, jnp.asarray(codes)))
  np.testing.assert_allclose(images.astype(int), expected.astype(int), atol=1)
  with pytest.raises(ValueError, match="all 12 tokens of an image, we instead got 11"):
    lumina.family.decode(tokens, lengths=np.asarray([11]))


# Emu3 has the same row ends and base: its tests have greedy windows of a smaller network and of a chain of a head.
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EXACT if name not in ("speculative", "eagle-chain")])
def test_greedy_windows_are_greedy_decoding(lumina, name):
  check_greedy(lumina, name, 16)


@pytest.fixture(scope="module")
def prompt_and_joint(lumina):
  row = [0, 60, DISCRETE["end_prompt"], DISCRETE["begin_image"], DISCRETE["first_size"] + 2, DISCRETE["first_size"] + 1]
  prompt = Prompt(np.asarray([row], np.int32), np.ones((1, len(row)), bool))
  return prompt, joint_across_rows(lumina, 16, prompt)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_windows_across_row_ends_are_exact(lumina, prompt_and_joint, name):
  check_distribution(lumina, name, *prompt_and_joint)


def test_what_does_not_fit(folders, anole, tmp_path):
  with pytest.raises(ValueError, match="does not fit the target: layout lumina instead of anole"):
    load_pipeline(folders["anole"], draft=folders["rows"]).decoder("speculative")
  heads = tiny_chameleon.save_heads(tmp_path / "heads", folders["lumina"])
  for method, draft, line in (("eagle", "head", "vocab_size 18 instead of 16"), ("ciar", "edge", "layout lumina")):
    with pytest.raises(ValueError, match=f"does not fit the target: {line}"):
      load_pipeline(folders["anole"], draft=heads[draft]).decoder(methods.make_method(method))
  copy = shutil.copytree(folders["anole"], tmp_path / "anole")
  shutil.rmtree(copy / "vq")
  with pytest.raises(ValueError, match="a part 'tokenizer'"):
    load_pipeline(copy)
  assert load_pipeline(copy, tokenizer=folders["lumina"] / "vq").family.space.num_tokens == 16
  with pytest.raises(ValueError, match="an image tokenizer, .* holds a chameleon"):
    load_pipeline(folders["anole"], tokenizer=folders["draft"])
  family, config = anole.family, anole.family.target.config
  swapped = dataclasses.replace(family.target, config=dataclasses.replace(config, end_image=23))
  with pytest.raises(ValueError, match="its tokenizer has end_image 20, its network 23"):
    dataclasses.replace(family, target=swapped)
  (copy / "tokenizer.json").unlink()
  with pytest.raises(ValueError, match="No tokenizer.json"):
    load_pipeline(copy)


def test_shapes_alone_are_enough_to_build(folders, tmp_path):
  heads = tiny_chameleon.save_heads(tmp_path, folders["lumina"])
  pipe = load_pipeline(folders["lumina"], drafts=heads, target_weights=False)
  head = pipe.decoder(EXACT["eagle"]).parts.params.draft.model
  assert head["tok_embeddings"]["weight"].shape == head["output"]["weight"].shape == (18, 16)
  assert not pipe.target.has_weights and pipe.target.params["lm_head"]["weight"].shape == (18, 16)
  assert load(folders["lumina"]).config.layout == "lumina"


def test_vocabularies_are_read_by_name():
  made = tiny_chameleon.text_tokenizer()
  assert image_vocabulary.read_ids(made, "here") == DISCRETE
  content = made.to_str()
  for old, new, words in (
    ("IMGIMGCZ", "IMGIMGBJZ", "image codes that follow each other in here"),
    ("<eoss>", "<eos>", "<eoss> is missing"),
  ):
    changed = from_json(content.replace(old, new).encode(), "here")
    with pytest.raises(ValueError, match=words):
      image_vocabulary.read_ids(changed, "here")
  with pytest.raises(ValueError, match="Corrupt here"):
    from_json(b"[]", "here")
