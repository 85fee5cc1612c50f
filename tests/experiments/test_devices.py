"""The driver of trainings: pending runs, finished runs, and commands."""

import json
from pathlib import Path

import pytest

from experiments.configs import scenes, scenes_ciar
from experiments.train import devices
from jaxspec.core.overrides import override
from jaxspec.io import shipped
from jaxspec.io.bundle import read_bundle, write_bundle
from jaxspec.models.heads.inter_head import InterHeadConfig
from tests.cli.fake_bundle import DRAFT, make_fake_bundle, save_random
from tests.exit_status import status_of


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
  return make_fake_bundle(tmp_path_factory.mktemp("devices") / "bundle")


def finish(training, bundle, hours=0.5):
  """Writes the export of a training."""
  meta = {"run": json.loads(json.dumps(devices._as_json(training.run))), "hours_of_last_start": hours}
  meta["command"] = f"jaxspec train {training.kind} --set seed=1"
  save_random(bundle / training.name, InterHeadConfig(DRAFT), 0, guided=False, **meta)
  write_bundle(bundle, drafts={training.name: training.name})


def changed(name, *assignments):
  (training,) = devices.chosen([name])
  return training._replace(run=override(training.run, assignments))


def test_what_is_trained_is_passed_over_unless_it_was_trained_otherwise(bundle):
  one, other = (changed(name, "loop.num_steps=5") for name in ("inter-1", "inter-1-seed1"))
  assert not devices.is_trained(one, read_bundle(bundle))
  finish(one, bundle)
  found = read_bundle(bundle)
  assert devices.is_trained(one, found) and not devices.is_trained(other, found)
  assert not devices.is_trained(changed("inter-1", "loop.num_steps=6"), found)
  assert devices.left([other], found) == "1 to train, about 0:30:00 for 1 of them"
  assert "no timings of eagle yet" in devices.left([other, changed("eagle")], found)


def test_the_shipped_networks_were_trained_with_the_settings_of_today():
  found = read_bundle(shipped.named("scenes"))
  assert all(devices.is_trained(changed(name), found) for name in ("eagle", "draft-1", "inter-2"))
  assert not devices.is_trained(changed("eagle", "seed=1"), found)


def test_commands_have_what_differs_from_their_defaults(bundle):
  places = (Path("runs"), Path("out"), bundle, Path("captions.txt"), Path("samples.npz"))
  words = changed("inter-2x3-seed2", "loop.num_steps=7").command(*places)[1:]
  assert words[:6] == ["-m", "jaxspec", "train", "inter-head", "--name", "inter-2x3-seed2"]
  assert words[-4:] == ["--run-dir", "runs/inter-2x3-seed2", "--export", "out"]
  settings = lambda words: {words[at + 1] for at, word in enumerate(words) if word == "--set"}
  assert settings(words) == {"seed=2", "loop.num_steps=7", "num_heads=3"}
  words = changed("inter-2-features").command(*places)[1:]
  assert words[:4] == ["-m", "experiments.train.interval_features", "--config", "inter-2"]
  assert settings(words) == {f"bundle={bundle}", "captions=captions.txt", "samples=samples.npz"}


@pytest.mark.parametrize(
  "name, assignment, other",
  [("inter-2", "seed=5", "inter-2-seed5"), ("inter-2", "num_heads=3", "inter-2x3"), ("draft-1", "num_layers=3", "draft-3")],
)
def test_a_setting_of_the_name_is_refused(name, assignment, other):
  (training,) = devices.chosen([name])
  with pytest.raises(ValueError, match=f"settings of {name}, we instead got those of {other}: choose that NAME"):
    training.changed([assignment])


def test_nothing_is_copied_for_a_wrong_command(tmp_path, bundle, capsys):
  out = tmp_path / "out"
  for words in (["--set", "nosuch=3"], ["--bundle", tmp_path / "nothing"]):
    assert status_of(devices.main, "eagle", "--bundle", bundle, "--out", out, *words) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not out.exists()


def test_patterns_and_names():
  assert [one.name for one in devices.chosen(["draft-*"])] == ["draft-1", "draft-2"]
  assert len(devices.chosen([])) == len(devices.trainings())
  with pytest.raises(ValueError, match="we instead got 'inter-9'"):
    devices.chosen(["inter-9"])
  order = [one.name for one in devices.trainings()]
  for seed in devices.SEEDS:  # interval features need their edge network
    assert order.index(devices.edge_name(seed=seed)) < order.index(devices.features_name(seed))


def test_every_edge_network_of_a_table_is_trained():
  trained_names = {training.name for training in devices.trainings()}
  for name, table in {**scenes.TABLES, **scenes_ciar.TABLES}.items():
    rows = [entry for heat in table.heats for entry in heat.rows] if hasattr(table, "heats") else table.rows
    assert {entry.draft for entry in rows if entry.draft} <= trained_names, name
    assert getattr(table, "draft", "") in {"", *trained_names}
  assert len(trained_names) == len(devices.trainings())
  assert devices.edge_name("2x3", 2) == "inter-2x3-seed2" and devices.edge_name(guided=True) == "inter-2-guided"
  assert devices.features_name(1) == "inter-2-seed1-features"


def test_one_factor_is_varied_at_a_time():
  base = next(one.run for one in devices.trainings() if one.name == "inter-2")
  fields = ("num_layers", "num_heads", "loss", "guided", "seed")
  for one in devices.trainings():
    if one.kind == "inter-head":
      changed = [field for field in fields[:4] if getattr(one.run, field) != getattr(base, field)]
      assert len(changed) <= 1 and one.run.seed in devices.SEEDS, one.name
      assert one.run.loop == base.loop and one.run.optimizer == base.optimizer and one.run.num_samples == base.num_samples
