"""Prints the agreement with official code as Markdown tables, one per family.

``python -m experiments.parity_table`` runs every golden check of ``tests/models/llamagen_parity.py`` and
``mar_parity.py`` (the full-size ones included; about two minutes on a CPU) and writes
``experiments/results/parity_FAMILY.json`` and ``.md``; ``--family mar`` runs one. Expected: every error within its
tolerance. LlamaGen: logits of the tiny models near 5e-6, of GPT-B near 1e-5, decoded pixels near 1e-5. MAR: tokens of
complete generations and decoded pixels near 1e-5, the loss near 1e-7.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path

import click
import jax

RESULTS = Path(__file__).parent / "results"
FAMILIES = ("llamagen", "mar")


def to_markdown(rows) -> str:
  """One line per array; tolerance 0 reads "exact"."""
  lines = ["| golden | array | max abs error | tolerance |", "|---|---|---|---|"]
  for row in rows:
    bound = "exact" if row.tolerance == 0 else f"{row.tolerance:.2g}"
    mark = "" if row.passed else " **exceeded**"
    error = "0" if row.max_error == 0 else f"{row.max_error:.1e}"
    lines.append(f"| {row.golden} | {row.array} | {error}{mark} | {bound} |")
  return "\n".join(lines) + "\n"


def checks_of(family: str, quick: bool) -> tuple[Callable, ...]:
  """The functions that yield a family's rows."""
  if family == "llamagen":
    from tests.models import llamagen_parity as parity

    return (*parity.TRANSFORMER_CHECKS, *parity.TOKENIZER_CHECKS, *(() if quick else parity.SLOW_CHECKS))
  from tests.models import mar_parity as parity

  return (*parity.FAST_CHECKS, *(() if quick else parity.SLOW_CHECKS))


@click.command()
@click.option("--quick", is_flag=True, help="Leave out full-size models and long runs; prints only.")
@click.option("--family", "families", multiple=True, type=click.Choice(FAMILIES), default=FAMILIES, help="All by default.")
def main(quick: bool, families: tuple[str, ...]) -> None:
  """Runs the checks, prints the tables and stores them."""
  jax.config.update("jax_default_matmul_precision", "highest")
  failed = []
  for family in families:
    rows = [row for check in checks_of(family, quick) for row in check()]
    table = to_markdown(rows)
    click.echo(table, nl=False)
    failed += [f"{row.golden}/{row.array}" for row in rows if not row.passed]
    if quick:
      continue
    RESULTS.mkdir(exist_ok=True)
    document = {
      "command": f"python -m experiments.parity_table --family {family}",
      "jax": jax.__version__,
      "backend": jax.default_backend(),
      "machine": platform.machine(),
      "rows": [row._asdict() | {"passed": row.passed} for row in rows],
    }
    (RESULTS / f"parity_{family}.json").write_text(json.dumps(document, indent=2) + "\n")
    (RESULTS / f"parity_{family}.md").write_text(table)
  if failed:
    raise click.ClickException(f"Must have errors within tolerance, {', '.join(failed)} are not")


if __name__ == "__main__":
  main()
