"""Prints the agreement with the official LlamaGen code as a Markdown table.

``python -m experiments.parity_table`` runs every golden check of ``tests/models/llamagen_parity.py`` (the full-size
ones included; about a minute on a CPU) and writes ``experiments/results/parity_llamagen.json`` and ``.md``. Expected:
every error within its tolerance; logits of the tiny models near 5e-6, of GPT-B near 1e-5, decoded pixels near 1e-5.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path

import click
import jax

RESULTS = Path(__file__).parent / "results"


def to_markdown(rows) -> str:
  """One line per array; tolerance 0 reads "exact"."""
  lines = ["| golden | array | max abs error | tolerance |", "|---|---|---|---|"]
  for row in rows:
    bound = "exact" if row.tolerance == 0 else f"{row.tolerance:.2g}"
    mark = "" if row.passed else " **exceeded**"
    error = "0" if row.max_error == 0 else f"{row.max_error:.1e}"
    lines.append(f"| {row.golden} | {row.array} | {error}{mark} | {bound} |")
  return "\n".join(lines) + "\n"


@click.command()
@click.option("--quick", is_flag=True, help="Leave out the full-size models; prints only.")
def main(quick: bool) -> None:
  """Runs the checks, prints the table and stores it."""
  jax.config.update("jax_default_matmul_precision", "highest")
  from tests.models import llamagen_parity as parity

  checks = (*parity.TRANSFORMER_CHECKS, *parity.TOKENIZER_CHECKS, *(() if quick else parity.SLOW_CHECKS))
  rows = [row for check in checks for row in check()]
  table = to_markdown(rows)
  click.echo(table, nl=False)
  if not quick:
    RESULTS.mkdir(exist_ok=True)
    document = {
      "command": "python -m experiments.parity_table",
      "jax": jax.__version__,
      "backend": jax.default_backend(),
      "machine": platform.machine(),
      "rows": [row._asdict() | {"passed": row.passed} for row in rows],
    }
    (RESULTS / "parity_llamagen.json").write_text(json.dumps(document, indent=2) + "\n")
    (RESULTS / "parity_llamagen.md").write_text(table)
  if failed := [f"{row.golden}/{row.array}" for row in rows if not row.passed]:
    raise click.ClickException(f"Must have errors within tolerance, {', '.join(failed)} are not")


if __name__ == "__main__":
  main()
