"""Records decodes at a server as traces, for `experiments.server.load`.

    jaxspec serve wordnet --profile sqs:coding=lazy
    python -m experiments.server.record grpc://127.0.0.1:8443 wordnet "a large river: " --method sqs --set coding=lazy

A trace holds its prompt. The first sequence is decoded once before it is recorded: compiling is not taken for thinking.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.engine.experiment import Lab, keep_compiled
from experiments.engine.rows import row
from experiments.server.decodes import Case, Edge
from experiments.server.load import add_connection_options, connection
from experiments.server.recorder import Recorder
from experiments.server.trace import Trace, write_trace
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


def main(arguments: Sequence[str] | None = None) -> int:
  """The exit status: 0, or 2 after one line about what is wrong."""
  parser = argparse.ArgumentParser(
    prog="python -m experiments.server.record", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("url", help="grpcs://HOST:PORT")
  parser.add_argument("bundle", help="folder or name of a shipped one")
  parser.add_argument("prompts", nargs="+", metavar="PROMPT")
  parser.add_argument("--method", default="sqs", help="[%(default)s]")
  parser.add_argument("--set", dest="options", action="append", default=[], metavar="NAME=VALUE", help="of the method")
  parser.add_argument("--number", type=int, default=8, metavar="N", help="traces; prompts repeat [%(default)s]")
  parser.add_argument("--max-tokens", type=int, default=64, metavar="N", help="of every trace [%(default)s]")
  parser.add_argument("--out", type=Path, default=Path("traces"), metavar="DIR", help="folder of traces [%(default)s]")
  add_connection_options(parser)
  args = parser.parse_args(arguments)
  try:
    options = {name: _literal(text) for name, _, text in (each.partition("=") for each in args.options)}
    prompts = tuple(itertools.islice(itertools.cycle(args.prompts), args.number))
    drawn = row(args.method, max_len=args.max_tokens, **options)
    case = Case(args.bundle, drawn, prompts, args.max_tokens)
    keep_compiled()
    traces = record(case, Lab(Path("runs/tables")), args.url, args.number, **connection(args))
    args.out.mkdir(exist_ok=True)
    for trace in traces:
      write_trace(args.out / f"{trace.handshake.stream.hex()}.json", trace)
  except (CloudError, ImportError, OSError, ValueError) as error:
    print(f"experiments.server.record: error: {' '.join(str(error).split())}", file=sys.stderr)
    return 2
  return 0


def _literal(text: str) -> Any:
  try:
    return ast.literal_eval(text)
  except (SyntaxError, ValueError):
    return text


if __name__ == "__main__":
  sys.exit(main())
