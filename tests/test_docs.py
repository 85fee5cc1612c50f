"""Examples in the documentation and in docstrings run, and all public names are documented."""

import dataclasses
import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxspec
from jaxspec import testing
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.serving.edge.edge_stream import Edge
from jaxspec.serving.edge.remote_decode import decode_over_cloud
from jaxspec.serving.wire.method_codecs import codec_of
from tests import shallow
from tests.cli import fake_language
from tests.helpers import TARGET, labels, markov_fns, random_params, side, tiny_pair

ROOT = Path(__file__).parents[1]
SMALL = dataclasses.replace(TARGET, num_layers=1)
_SERVE_AND_DECODE = """
with jaxspec.serve("checkpoints/wordnet", listen="127.0.0.1:0", max_streams=4, max_rows=2, widths=(24,)) as server:
  cloud = jaxspec.connect(server.address, token=server.token)
  out, traffic = decode_over_cloud(Edge(params.draft, drafter, codec, max_len=24), key, prompt, cloud)
"""


def _blocks(page: str) -> list[str]:
  return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)


@pytest.mark.slow
def test_examples_of_the_page_on_adding_things():
  fns = llamagen_fns(TARGET)
  weights = random_params(fns, 0)
  scope = {"jaxspec": jaxspec, "target_fns": fns, "__name__": "adding"}
  # The package of a plug-in is read by test_plugins.py.
  rule, audited_rule, drafter, look_up, method, chain, family, _, checks = _blocks("docs/adding.md")
  for block in (rule, audited_rule, drafter, look_up):
    exec(block, scope)
  params, condition = jaxspec.SpecParams((), side(weights)), labels(2)
  repeat = scope["RepeatDrafter"](3, TARGET.vocab_size)
  out = jaxspec.speculate(params, jax.random.key(0), condition, drafter=repeat, verifier=scope["verifier"], max_len=9)
  np.testing.assert_array_equal(out.counters.accepted, out.counters.drafted)
  np.testing.assert_array_equal(out.tokens[:, :4], out.tokens[:, :1] + np.zeros((1, 4), int))
  np.testing.assert_allclose(scope["position"].tv, 0.4, atol=1e-6)
  np.testing.assert_allclose(scope["position"].alpha - scope["position"].alpha_sd, 0.4, atol=1e-6)
  exec(method, scope)
  exec(chain, scope)
  assert scope["LikelyChain"](share=0.25).rule(None) == (scope["Likely"](share=0.25), ())
  decoder = jaxspec.Decoder(jaxspec.Network(fns, weights, TARGET), scope["Repeat"](copies=2))
  out = decoder(condition, key=jax.random.key(0), max_len=9)
  assert out.counters.drafted.all() and not out.counters.draft_calls.any()
  with jax.numpy_rank_promotion("raise"):
    exec(checks, scope)
  exec(family, scope)
  config = scope["StripesConfig"]()
  network = jaxspec.Network(scope["stripes_fns"](config), {"table": 40.0 * np.eye(3)[[1, 2, 0]]}, config)
  pipe_family = scope["StripesFamily"](network)
  assert pipe_family.space.num_tokens == 6 and pipe_family.encode([2]).captions == ["class 2"]
  assert pipe_family.decode(np.array([[0, 1, 2]])).tolist() == [[[[0] * 3, [127] * 3, [255] * 3]]]


@pytest.mark.slow
def test_the_n_gram_lookup_of_that_page():
  """On a chain that goes round: it finds nothing in the first round, and all that it drafts is accepted."""
  scope = {}
  for block in _blocks("docs/adding.md")[2:4]:
    exec(block, scope)
  drafter, vocab, max_len = scope["lookup"](4, 5), 5, 24
  cycle = np.where(np.roll(np.eye(vocab), 1, axis=1), 0.0, -np.inf)  # token i is followed by i + 1
  chain = jax.numpy.asarray(np.concatenate([cycle, np.zeros((1, vocab))]), np.float32)
  params = jaxspec.SpecParams((), side(chain))
  verifier = jaxspec.TargetVerifier(markov_fns(vocab), jaxspec.lossless, warp=jaxspec.Warp())
  keys, call = testing.fast_keys(0, 8), dict(drafter=drafter, verifier=verifier, max_len=max_len)
  out = jaxspec.speculate(params, keys, labels(8), **call)
  np.testing.assert_array_equal(out.tokens, (np.asarray(out.tokens[:, :1]) + np.arange(max_len)) % vocab)
  # The pair of tokens 0 and 1 comes again as tokens 5 and 6. Drafts then fill the row, with a bonus token after each block.
  np.testing.assert_array_equal(out.counters.rounds, 6 + 4)
  np.testing.assert_array_equal(out.counters.accepted, out.counters.drafted)
  testing.check_exact(drafter=scope["lookup"](2, 3))


@pytest.mark.slow
def test_examples_of_the_readme(tmp_path, monkeypatch):
  """Verbatim, on shallow networks."""
  monkeypatch.chdir(shallow.write(tmp_path, "scenes").parent)
  scope = {}
  first, second = _blocks("README.md")
  exec(first, scope)
  assert scope["out"].images.shape == (2, 96, 96, 3) and scope["out"].images.dtype == np.uint8
  assert scope["out"].tokens.shape == (2, 144) and (scope["out"].counters.target_calls < 144).all()
  exec(second, scope)
  assert scope["out"].images.shape == (1, 96, 96, 3)


@pytest.mark.slow
def test_example_of_the_page_for_users_of_diffusers(tmp_path, monkeypatch, capsys):
  """Verbatim, on shallow networks."""
  (block,), scope = _blocks("docs/from_diffusers.md"), {}
  monkeypatch.chdir(shallow.write(tmp_path, "scenes").parent)
  exec(block, scope)
  assert sorted(path.name for path in tmp_path.rglob("*.png")) == ["0000.png", "0001.png", "heart.png"]
  *rounds, error = capsys.readouterr().out.splitlines()
  assert [line.partition(":")[0] for line in rounds] == [f"round {number}" for number in range(6)]
  assert "gamma" in error and "options belong to the method" in error
  out = scope["out"]
  assert out.images is None and 6 <= out.lengths[0] < 144 and isinstance(out.failure, jaxspec.errors.Cancelled)


@pytest.mark.slow
def test_examples_of_the_page_on_serving(tmp_path, monkeypatch):
  """Verbatim, on shallow networks: an edge over a socket has the tokens of one process."""
  pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")
  monkeypatch.chdir(shallow.write(tmp_path, "wordnet").parent)
  scope = {}
  (block,) = _blocks("docs/serving.md")
  exec(block, scope)
  pipe, out = scope["pipe"], scope["out"]
  wanted = pipe(["a large river: "], key=jax.random.key(0), method=scope["method"], max_len=24)
  np.testing.assert_array_equal(out.tokens, wanted.tokens)


@pytest.mark.slow
def test_the_shortest_decode_over_a_server(tmp_path, monkeypatch):
  """A server of a folder, a connection, a decode."""
  pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")
  bundle = shallow.write(tmp_path, "wordnet")
  monkeypatch.chdir(tmp_path)
  pipe = jaxspec.load_pipeline("wordnet", matmul_precision="float32")
  method = pipe.method("sqs")
  parts, prompt, key = pipe.decoder(method).parts, pipe.encode(["a large river: "]).condition, jax.random.key(0)
  scope = dict(jaxspec=jaxspec, params=parts.params, key=key, prompt=prompt, drafter=parts.drafter)
  scope |= dict(codec=codec_of(method, pipe.family.space.vocab_size), decode_over_cloud=decode_over_cloud, Edge=Edge)
  with pipe.context():
    exec(_SERVE_AND_DECODE.replace("checkpoints/wordnet", str(bundle)), scope)
  wanted = pipe.decoder(method)(prompt, key=jax.random.key(0), max_len=24)
  if jaxspec.load_pipeline("wordnet").matmul_precision == "float32":  # else the server rounds the inputs of its products
    np.testing.assert_array_equal(scope["out"].tokens, wanted.tokens)
  traffic = scope["traffic"]
  assert (traffic.transport_bytes > [traffic.uplink_bytes.sum(), traffic.downlink_bytes.sum()]).all()


@pytest.mark.slow
def test_examples_of_the_page_on_rules():
  blocks = _blocks("docs/rules.md")
  assert len(blocks) == 4
  params, drafter, _ = tiny_pair(window=3)
  p, q = jax.nn.softmax(jax.random.normal(jax.random.key(0), (2, TARGET.vocab_size)))
  codebook = jax.random.normal(jax.random.key(1), (TARGET.vocab_size, 4))
  scope = dict(params=params, drafter=drafter, warp=jaxspec.Warp(), target_fns=llamagen_fns(TARGET))
  scope |= dict(prompt=labels(2), codebook=codebook, p=p, q=q)
  for block in blocks:
    exec(block, scope)
  assert scope["out"].tokens.shape == scope["out"].metrics.tv.shape == (2, 16)
  assert float(scope["out"].metrics.tv.max()) > 0
  assert int(scope["out"].counters.drafted.sum()) > 0
  position = scope["position"]
  np.testing.assert_allclose(position.tv, position.excess, atol=1e-6)
  np.testing.assert_allclose(scope["own"].tv, scope["own"].excess, atol=1e-6)


@pytest.mark.slow
def test_examples_of_the_page_on_links():
  blocks = _blocks("docs/sqs.md")
  assert len(blocks) == 3
  fns = llamagen_fns(SMALL)
  scope = dict(vocab=SMALL.vocab_size, draft_fns=fns, target_fns=fns, key=jax.random.key(0), prompt=labels(2))
  scope |= dict(draft_params=random_params(fns, 1), target_params=random_params(fns, 0))
  for block in blocks:
    exec(block, scope)
  np.testing.assert_array_equal(scope["out"].tokens, scope["far"].tokens)
  assert scope["traffic"].coded_bits.all()
  assert 0 < scope["ahead"] < scope["waits"]


@pytest.mark.slow
def test_example_of_the_page_on_gated_edges():
  (block,) = _blocks("docs/ciar.md")
  fns = llamagen_fns(SMALL)
  scope = dict(cloud_config=SMALL, cloud_fns=fns, cloud_params=random_params(fns, 0), key=jax.random.key(0))
  scope["prompt"] = labels(2)
  exec(block, scope)
  counters = scope["out"].counters
  total = counters.local + counters.accepted + counters.target_calls
  np.testing.assert_array_equal(total, 16)  # every verifying call, and the prefill, gives one token of its own


@pytest.mark.slow
def test_example_of_the_page_on_language_models(tmp_path):
  (block,) = _blocks("docs/text.md")
  fake_language.make(tmp_path)
  scope = {"target_folder": tmp_path / "target", "draft_folder": tmp_path / "draft"}
  exec(block, scope)
  assert scope["out"].tokens.shape == (2, 8) and all(isinstance(text, str) for text in scope["texts"])


@pytest.mark.slow
def test_example_of_the_page_on_vector_tokens():
  from jaxspec.core.network import Network
  from jaxspec.models.mar.causal_tokens import CausalTokensConfig, causal_token_fns

  block = _blocks("docs/mar.md")[-1]
  config = CausalTokensConfig(
    num_tokens=16, latent_channels=2, num_classes=9, dim=8, num_layers=1, num_heads=2, diffloss_width=8, diffloss_depth=1
  )
  fns = causal_token_fns(config)
  side_of = lambda seed: Network(fns, random_params(fns.network, seed, scale=0.2))
  scope = {"target": side_of(0), "draft": side_of(1)}
  exec(block, scope)
  assert scope["out"].tokens.shape == (2, 16, 2) and np.all(np.isfinite(scope["out"].tokens))


@pytest.mark.slow
def test_example_of_the_page_on_dit():
  from types import SimpleNamespace

  from jaxspec.models.dit.dit import DiTConfig, dit_fns
  from jaxspec.models.tokenizers.kl_vae import KLVAEConfig, kl_vae_fns

  block = _blocks("docs/dit.md")[-1]
  config = DiTConfig(latent_size=4, num_classes=400, dim=8, num_layers=1, num_heads=2)
  coder = KLVAEConfig.named("SD-VAE", base_channels=4, multipliers=(1, 2), num_res_blocks=1, num_groups=2)
  networks = {"dit": (config, dit_fns(config)), "vae": (coder, kl_vae_fns(coder))}
  scope = {
    name: SimpleNamespace(config=of, fns=fns, params=random_params(fns, 0, scale=0.2))
    for name, (of, fns) in networks.items()
  }
  exec(block, scope)
  assert scope["images"].shape == (2, 8, 8, 3) and scope["deterministic"].shape == (2, 64)
  assert np.all(np.isfinite(scope["ancestral"])) and np.all(np.isfinite(scope["deterministic"]))


def _modules():
  package = importlib.import_module("jaxspec")
  for info in pkgutil.walk_packages(package.__path__, "jaxspec."):
    if ">>>" in (ROOT / (info.name.replace(".", "/") + ".py")).read_text() if not info.ispkg else False:
      yield info.name


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(_modules()))
def test_docstring_examples(name):
  with jax.numpy_rank_promotion("raise"):
    outcome = doctest.testmod(importlib.import_module(name))
  assert outcome.attempted > 0 and outcome.failed == 0


def test_public_names_exist_and_have_docstrings():
  for name in jaxspec.__all__:
    value = getattr(jaxspec, name)
    assert name == "__version__" or value.__doc__, name


def test_fields_of_the_contracts_are_documented():
  """With their shapes, in the docstring, since `help` and the site do not show comments."""
  contracts = [value for value in vars(jaxspec.core.types).values() if isinstance(value, type) and hasattr(value, "_fields")]
  assert {jaxspec.Draft, jaxspec.Verdict, jaxspec.ModelFns} < set(contracts)
  for contract in contracts:
    documented = re.findall(r"^  (\w+): ", inspect.getdoc(contract).partition("Attributes:\n")[2], re.M)
    assert tuple(documented) == contract._fields, contract


def test_type_checkers_see_every_public_name():
  stub = (ROOT / "jaxspec" / "__init__.pyi").read_text()
  assert set(re.findall(r" as (\w+)$", stub, re.M)) == set(jaxspec.__all__) - {"__version__"}
