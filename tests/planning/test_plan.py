"""Plans of every method on tiny networks, and limits of a published one."""

import dataclasses
import json

import pytest

from jaxspec import methods
from jaxspec.core.mesh import MeshSizes
from jaxspec.io.shipped import named
from jaxspec.methods import METHODS
from jaxspec.models.chameleon.chameleon import ChameleonConfig
from jaxspec.models.janus import JanusConfig
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.models.tokenizers.llamagen_vq import LlamaGenVQConfig
from jaxspec.planning import find_model, make_plan, parse_device, sampling_of
from jaxspec.planning.published_models import MODELS, Model
from jaxspec.planning.random_weights import RandomModel
from jaxspec.run.loading import load_pipeline
from tests.methods.networks import CAUSAL, MAR, VAR, small
from tests.run import tiny
from tests.run.tiny import save

CONFIG = LlamaGenConfig(num_layers=3, dim=16, num_heads=2, vocab_size=12, num_tokens=16, num_classes=3, multiple_of=16)
DISCRETE = Model(
  "tiny", "llamagen", CONFIG, 16, guidance=2.0,
  tokenizer=LlamaGenVQConfig(base_channels=32, multipliers=(1,), num_res_blocks=1, codebook_size=12, codebook_dim=2),
)  # fmt: skip
MASKED, CAUSAL_TOKENS = Model("masked", "mar", MAR, 4), Model("causal", "causal_tokens", CAUSAL, 4)
H100 = parse_device("h100")


def model_for(method: methods.Method) -> Model:
  if method.fits(methods.DISCRETE):
    return DISCRETE
  return MASKED if method.name == "parallel" else CAUSAL_TOKENS


def test_methods_of_whole_images_are_not_planned():
  for name in ("scale-speculative", "step-speculative"):
    for model in (DISCRETE, CAUSAL_TOKENS):
      with pytest.raises(ValueError, match=f"we instead got {name}"):
        make_plan(model, H100, method=small(name))


PLANNED = [name for name, cls in METHODS.items() if cls.tokens in (methods.DISCRETE, methods.CONTINUOUS)]


@pytest.mark.parametrize("name", PLANNED)
def test_every_method(name):
  """Window, draft network and rule are those of the method."""
  method = small(name)
  model = model_for(method)
  draft = model if name == "cspd" else None
  plan = make_plan(model, H100, batches=(2, 4), method=method, draft=draft, acceptance=0.5)
  assert plan.window == (2 if name == "rows" else method.drafts_per_round())
  assert (plan.draft is None) == (method.draft_family is None)
  first, second = plan.batches
  assert first.fits and plan.largest > 4 and second.bytes > first.bytes
  speed = first.speed
  assert speed.target.inputs == plan.window + 1
  expected = {"ar": 1.0, "parallel": 2.0, "rows": 1.6, "ciar": 1 / 0.3, "speculative": 1 + 0.5 + 0.25 + 0.125, "eagle": 1.75}
  assert speed.tokens == pytest.approx(expected.get(name, speed.tokens))
  assert speed.tokens_per_s * speed.row_s == pytest.approx(2 * model.num_tokens)
  if plan.draft is not None:
    assert speed.round_s == pytest.approx(speed.target.seconds + speed.draft_calls * speed.draft.seconds)
    inputs = {"eagle": 2, "eagle-lantern": 2, "block-head": 3, "spatial": 3}
    assert speed.draft_calls > 0 and speed.draft.inputs == inputs.get(name, 1)
  parts = {need.name: need.bytes(2) for need in plan.memory.needs}
  tables = {"gsd": 12 * 12 * 4 + 2 * 4, "lantern": 12 * 2 * 4 + 4, "scaled": 4, "eagle-lantern": 12 * 2 * 4}  # and numbers
  assert parts.get("table of the acceptance rule", 0) == tables.get(name, 0)
  json.dumps(plan.as_json())


def test_heads_of_a_chameleon(tmp_path):
  """A head is one block and reads the rows of local ids; an edge network also embeds prompts."""
  config = ChameleonConfig(
    vocab_size=40, dim=16, num_layers=3, num_heads=2, ffn_hidden=24, layout="lumina", rows=4, columns=2, num_codes=10,
    end_image=14, begin_image=15, end_prompt=16, end_row=17,
  )  # fmt: skip
  model = dataclasses.replace(find_model(str(save(tmp_path / "tiny", config, 0))), tokenizer=None)
  assert (model.num_tokens, model.vocab_size, model.guidance) == (12, 12, 3.0)
  block, table = 4 * 16**2 + 3 * 16 * 24, 12 * 16
  parameters = {
    "eagle": 2 * 16**2 + 16 + block + 16,
    "eagle-chain": 2 * 16**2 + 16 + block + 16,
    "spatial": 2 * 16**2 + 16 + 6 * 16 * 24 + 2 * 16 + 3 * 16**2 + 2 * 15 * 16,
    "ciar": 40 * 16 + block + 4 * 16 + 2 * 16 + 16 + 2 * table + 2 * 12,
  }
  for name, expected in parameters.items():
    plan = make_plan(model, H100, batches=(2,), method=small(name), acceptance=0.5)
    assert plan.draft[1] == expected
    draft, slots = plan.batches[0].speed.draft, model.prefix + model.num_tokens + plan.window
    if name == "spatial":  # without attention; the pool has the pairs of two rows of three tokens, of both halves
      assert draft.operations == 2 * 2 * draft.inputs * 2 * (5 * 16**2 + 6 * 16 * 24 + table)
      pool = next(need for need in plan.memory.needs if need.name == "draft caches")
      assert pool.bytes(1) == 2 * 6 * (4 + 2 * 16)
      continue
    multiplied = block + (2 * table if name == "ciar" else 2 * 16**2 + table)
    assert draft.operations == 2 * 2 * draft.inputs * (2 * multiplied + 4 * slots * 16)


@pytest.mark.slow
def test_a_folder_of_janus(tmp_path):
  """It has a grid and an image tokenizer; its sizes are published, and no head can be put on it."""
  config = JanusConfig(
    10, 20, dim=16, num_layers=2, num_heads=2, ffn_hidden=24, head_hidden=12, rows=3, columns=4, begin_text=1, begin_image=2,
    pad=9,
  )  # fmt: skip
  model = find_model(str(save(tmp_path / "tiny", config, 0)))
  assert (model.num_tokens, model.vocab_size, model.guidance, model.grid, model.side) == (12, 10, 5.0, (3, 4), 48)
  assert MODELS["janus-pro-7b"].draft == "janus-pro-1b" and MODELS["janus-pro-7b"].side == 384
  for name in [name for name in PLANNED if METHODS[name].fits(methods.DISCRETE)]:
    if METHODS[name].draft_family not in (None, methods.SAME_FAMILY):
      with pytest.raises(ValueError, match="a network that heads can be put on"):
        make_plan(model, H100, method=small(name))
    else:
      assert make_plan(model, H100, method=small(name), acceptance=0.5).batches[0].fits


def test_a_mesh_divides():
  """Two devices along data halve the rows of each; along model the weights of the blocks and the caches, but no tables."""
  alone = make_plan(DISCRETE, H100, batches=(4,), method=small("gsd"))
  data, model = (
    make_plan(DISCRETE, parse_device("h100:2"), batches=(4,), method=small("gsd"), mesh=mesh)
    for mesh in (MeshSizes(2, 1), MeshSizes(1, 2))
  )
  of = lambda plan: {need.name: need.bytes(plan.batches[0].rows) for need in plan.memory.needs}
  parts = of(alone)
  assert of(data)["weights"] == parts["weights"] and of(data)["caches"] == parts["caches"] / 2
  assert parts["weights"] / 2 < of(model)["weights"] < 0.6 * parts["weights"]
  mask = 4 * 2 * 24  # rows of a guided pair, and slots
  assert of(model)["caches"] - mask == (parts["caches"] - mask) / 2
  assert of(model)["table of the acceptance rule"] == parts["table of the acceptance rule"]
  assert data.batches[0].speed.target.exchanged == 0 < model.batches[0].speed.target.exchanged
  assert make_plan(DISCRETE, parse_device("h100:6"), batches=(3,)).mesh == MeshSizes(3, 2)


def test_limits_of_a_published_network():
  """LlamaGen-B in bfloat16 reads 0.20 GB of weights a step: 0.06 ms on an H100, and a pass over 16 tokens is no longer."""
  plan = make_plan(MODELS["llamagen-b"], H100, method=methods.Plain())
  (batch,) = plan.batches
  caches = next(need.each for need in plan.memory.needs if need.name == "caches")
  assert (batch.speed.target.read - caches) / 1e9 == pytest.approx(0.20, abs=0.005)
  assert 1e3 * batch.speed.target.seconds == pytest.approx(0.06, abs=0.005) and batch.speed.target.bound == "memory"
  assert plan.halves == 2 and plan.parameters == 110_888_448
  window = make_plan(MODELS["llamagen-b"], H100, method=methods.Sjd(window=15), acceptance=1.0)
  assert window.batches[0].speed.target.seconds == pytest.approx(batch.speed.target.seconds, rel=0.01)
  assert window.batches[0].speed.over_plain == pytest.approx(16, rel=0.01)


@pytest.mark.parametrize("kwargs, line", [
  (dict(dtype="int8"), "dtype in bfloat16, float32"),
  (dict(batches=(0,)), "batches of at least 1, we instead got 0"),
  (dict(method=methods.Cspd()), "draws discrete tokens for tiny, we instead got cspd"),
  (dict(mesh=MeshSizes(1, 2)), "mesh of the 1 devices of h100, we instead got data=1,model=2"),
  (dict(method=methods.Speculative(gamma=16)), "gamma below the 16 tokens"),
  (dict(acceptance=1.5), "acceptance from 0 to 1, we instead got 1.5"),
  (dict(method=methods.Speculative(), draft=MODELS["llamagen-b"]), "draft with the 12 tokens of tiny, .* 16384"),
  (dict(method=methods.Spatial(), draft=DISCRETE), "no draft for method spatial, whose head is made for the model, .* tiny"),
])  # fmt: skip
def test_refused(kwargs, line):
  with pytest.raises(ValueError, match=line):
    make_plan(DISCRETE, H100, **kwargs)


def test_a_block_is_one_pass_of_a_masked_target():
  speed = make_plan(MASKED, H100, batches=(2,), method=methods.Cspd(gamma=2, block=True), draft=MASKED).batches[0].speed
  assert (speed.tokens, speed.target.inputs) == (2.0, 1)


def test_methods_that_need_another_model():
  """A masked network has no layers to cut out as a draft."""
  with pytest.raises(ValueError, match="draft network for masked"):
    make_plan(MASKED, H100, method=methods.Cspd(gamma=2))


@pytest.mark.parametrize("initial", ["left", "above", "diagonal"])
def test_texts_have_no_grid_to_draft_from(initial):
  """Neither in a plan nor in a bench of random weights."""
  text, method = Model("text", "gpt_neo", tiny.NEO, 16), methods.Sjd(window=3, initial=initial)
  random = RandomModel(text, "float32")
  for refuse in (lambda: make_plan(text, H100, method=method), lambda: random.decoder(method, sampling_of(text)).parts):
    with pytest.raises(ValueError, match=f"a grid .for initial drafts from {initial}. for method sjd, we instead got none"):
      refuse()
  make_plan(text, H100, method=dataclasses.replace(method, initial="uniform"))


WRITERS = {
  "captions": tiny.captions,
  "texts": tiny.texts,
  "causal": lambda path: tiny.vectors(path, CAUSAL),
  "mar": lambda path: tiny.vectors(path, MAR),
}


@pytest.mark.parametrize(("kind", "grid"), {"captions": (2, 2), "texts": None, "causal": (2, 2), "mar": (2, 2)}.items())
def test_the_grid_of_a_model_is_that_of_its_family(tmp_path, kind, grid):
  path = WRITERS[kind](tmp_path)
  assert find_model(str(path / "target")).grid == grid
  assert load_pipeline(path / "target" if kind == "texts" else path).family.space.grid == grid


def test_row_ends_are_a_column():
  assert MODELS["anole-7b"].grid == (32, 32) and MODELS["lumina-7b-768"].grid == (48, 49)
  emu3 = MODELS["emu3-8b"]
  assert (emu3.grid, emu3.side, emu3.num_tokens, emu3.vocab_size, emu3.prefix) == ((90, 91), 720, 8193, 32772, 128)
  assert MODELS["lumina-7b-768"].side == 768 and MODELS["gpt-neo-1.3b"].side is None


def test_sampling_of_a_model():
  assert sampling_of(DISCRETE).cfg_scale == 2.0 and sampling_of(DISCRETE, cfg_scale=1.0).is_guided is False
  assert sampling_of(MODELS["mar-h"]).cfg_scale == 3.2
  assert make_plan(DISCRETE, H100, sampling=sampling_of(DISCRETE, cfg_scale=1.0)).halves == 1


def test_models():
  """Names are unique, lengths are those of the grids, and drafts exist."""
  for name, model in MODELS.items():
    assert model.name == name and (model.draft is None or model.draft in MODELS)
    assert model.side is None or model.side % 256 == 0 or model.side in (384, 720, 768)
    assert (model.vocab_size is None) == (model.family == "mar")
  assert MODELS["anole-7b"].with_tokens(100).num_tokens == 100
  assert MODELS["llamagen-b"].with_tokens(64).config.num_tokens == 64
  with pytest.raises(ValueError, match="square"):
    MODELS["llamagen-b"].with_tokens(99)
  with pytest.raises(ValueError, match="at least 1"):
    MODELS["anole-7b"].with_tokens(0)
  with pytest.raises(ValueError, match="at most 1984 tokens after 64 with gpt-neo-125m, we instead got 2000"):
    MODELS["gpt-neo-125m"].with_tokens(2000)


def test_a_bundle_is_planned_with_its_own_draft():
  """Of several drafts, the first with the target's family; a target alone takes its first layers."""
  found = make_plan(find_model(str(named("scenes"))), H100, method=small("speculative"))
  assert found.draft == ("draft-1", 1_445_632)
  alone = make_plan(find_model(str(named("scenes") / "target")), H100, method=small("speculative"))
  assert alone.draft is not None and alone.draft[0] == "2 layers of target"


def test_maps_are_not_planned(tmp_path):
  path = save(tmp_path / "var", VAR, 0)
  with pytest.raises(ValueError, match=r"one token after the other, .*var draws whole scales \(var\)"):
    find_model(str(path))
  with pytest.raises(ValueError, match=r"one token after the other, .*target draws whole noisy images \(dit\)"):
    find_model(str(named("digits32-dit") / "target"))


def test_unknown_models(tmp_path):
  with pytest.raises(ValueError, match="got 'anole': did you mean anole-7b"):
    find_model("anole")
  with pytest.raises(ValueError, match="--list"):
    find_model("zzz")
  with pytest.raises(ValueError, match="the path of a folder"):
    find_model("")
  with pytest.raises(ValueError, match="config.json"):
    find_model(str(tmp_path))
