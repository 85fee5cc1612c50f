"""Records decodes at a server as traces, for `experiments.server.load`.

    jaxspec serve wordnet --profile sqs:coding=lazy
    python -m experiments.server.record grpc://127.0.0.1:8443 wordnet "a large river: " --method sqs --set coding=lazy

A trace contains its prompt. The first sequence is decoded once before it is recorded, so that pauses
do not include compilation.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import click

from experiments.engine.experiment import Lab, keep_compiled
from experiments.engine.rows import row
from experiments.server.decodes import Case, Edge
from experiments.server.load import connection, connection_options
from experiments.server.recorder import Recorder
from experiments.server.trace import Trace, write_trace
from jaxspec.core.command_line import PATH, UserError, script
from jaxspec.core.overrides import literal
from jaxspec.serving.edge.connection import connect
from jaxspec.serving.wire.cloud import CloudError


def record(case: Case, lab: Lab, address: str, number: int = 1, **where: Any) -> list[Trace]:
  """Traces of the first sequences of a case, decoded at a server.

  Args:
    where: options of `jaxspec.serving.edge.connection.connect`.
  """
  edge, cloud, found = Edge(case, lab), connect(address, **where), []
  edge.run(0, cloud)
  for index in range(number):
    recorder = Recorder()
    tokens, _ = edge.run(index, cloud, observer=recorder)
    found.append(recorder.trace(cloud.description, len(tokens)))
  cloud.hang_up()
  return found


@script(__doc__)
@click.argument("url")
@click.argument("bundle")
@click.argument("prompts", nargs=-1, required=True)
@click.option("--method", default="sqs", metavar="NAME", help="Method that decodes.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="Another value of an option of the method.")
@click.option("--number", default=8, metavar="N", help="Traces; prompts repeat.")
@click.option("--max-tokens", default=64, metavar="N", help="Tokens of every trace.")
@click.option("--out", type=PATH, default="traces", metavar="DIR", help="Folder of the traces.")
@connection_options
def main(
  url: str, bundle: str, prompts: tuple[str, ...], method: str, assignments: tuple[str, ...], number: int, max_tokens: int,
  out: Path, **where: Any,
) -> None:  # fmt: skip
  options = {name: literal(text) for name, _, text in (each.partition("=") for each in assignments)}
  prompts = tuple(itertools.islice(itertools.cycle(prompts), number))
  case = Case(bundle, row(method, max_len=max_tokens, **options), prompts, max_tokens)
  keep_compiled()
  try:
    traces = record(case, Lab(Path("runs/tables")), url, number, **connection(**where))
  except CloudError as error:
    raise UserError(str(error)) from error
  out.mkdir(exist_ok=True)
  for trace in traces:
    write_trace(out / f"{trace.handshake.stream.hex()}.json", trace)


if __name__ == "__main__":
  main()
