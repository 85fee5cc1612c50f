"""Given but unread options: one line names them, and the command continues."""

import pytest


@pytest.mark.parametrize(
  "args, line",
  [
    (("plan", "--list", "--batch", 3), "Not read with --list: --batch"),
    (("audit", "--tiny", "--batch", 3, "--dtype", "bfloat16"), "Not read with --tiny: --batch, --dtype"),
    (
      ("serve", "--new-token", "bob", "--token-file", "t.jsonl", "--max-rows", 3),
      "Not read with --new-token: --max-rows",
    ),
    (("plan", "--model", "llamagen-b", "--device", "h100", "--acceptance", 0.5), "Not read by --method ar: --acceptance"),
    (
      ("plan", "--model", "llamagen-b", "--device", "h100", "--json", "--markdown"),
      "Not read with --json: --markdown",
    ),
  ],
)
def test_options_that_nobody_reads(run, args, line):
  outcome = run(*args)
  assert outcome.exit_code == 0 and outcome.stderr == f"Warning: {line}\n", outcome.output


@pytest.mark.slow
def test_captions_and_repeats_that_nobody_reads(run, class_models):
  source = ("--model", class_models / "target", "--tokenizer", class_models / "vq")
  outcome = run("generate", "a cat", "--class", 1, *source, "--method", "ar", "--repeats", 2)
  assert outcome.stderr.splitlines() == [
    "Warning: Not read without --compare: --repeats",
    "Warning: Not read by networks that draw classes: 'a cat', which only names the image",
  ]


def test_what_a_bench_does_not_read(run, class_models, monkeypatch):
  """Said before anything is measured."""
  args = ("bench-model", "--model", class_models / "target", "--no-lock-step", "--method", "sjd", "--draft-layers", 1)
  monkeypatch.setattr("jaxspec.planning.random_weights.RandomModel", None)
  lines = run(*args).stderr.splitlines()
  assert lines[:2] == ["Warning: Not read at batch 1: --lock-step", "Warning: Not read by --method sjd: --draft-layers"]
