"""The ``jaxspec`` command."""

from __future__ import annotations

import click

from jaxspec.cli.lazy import LazyCommand, LazyGroup

COMMANDS = {
  "generate": LazyCommand("jaxspec.cli.generate:generate", "Make images or continue texts, and measure the decoding."),
  "methods": LazyCommand("jaxspec.cli.methods:methods", "List the decoding methods, or explain one with its options."),
  "info": LazyCommand("jaxspec.cli.info:info", "Show what a checkpoint or a bundle holds."),
  "audit": LazyCommand("jaxspec.cli.audit:audit", "Measure the error of a method and the speed that it buys."),
  "diagnose": LazyCommand("jaxspec.cli.diagnose:diagnose", "Estimate which methods can speed up a target."),
  "bench": LazyCommand("jaxspec.cli.bench:bench", "Time plain against speculative decoding."),
  "bench-model": LazyCommand("jaxspec.cli.bench_model:bench_model", "Time a method on random weights of a published size."),
  "evaluate": LazyCommand("jaxspec.cli.evaluate:evaluate", "Score images of scenes, or compute FID, IS and CLIP score."),
  "studio": LazyCommand("jaxspec.cli.studio:studio", "Show decoding on a local web page, methods side by side."),
  "plan": LazyCommand("jaxspec.cli.plan:plan", "Estimate the memory and speed of a decode on a device."),
  "serve": LazyCommand("jaxspec.cli.serve:serve", "Serve the target to edge devices over gRPC."),
  "calibrate": LazyCommand("jaxspec.cli.calibrate:calibrate", "Find thresholds of method ciar for rates of cloud calls."),
  "convert": LazyCommand("jaxspec.cli.convert:convert", "Convert released weights into checkpoints."),
  "bundle": LazyCommand("jaxspec.cli.bundle:bundle", "Write a bundle: networks and their default settings."),
  "train": LazyCommand("jaxspec.cli.train:train", "Train heads and drafts of a target, or run a training script."),
}


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
  if value and not ctx.resilient_parsing:
    import importlib.metadata  # a third of the time that the help takes

    click.echo(f"jaxspec {importlib.metadata.version('jaxspec-decoding')}")
    ctx.exit()


_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(cls=LazyGroup, lazy_commands=COMMANDS, context_settings=_CONTEXT)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def main() -> None:
  """Fast, exact speculative decoding of autoregressive image and text models."""


if __name__ == "__main__":
  main()
