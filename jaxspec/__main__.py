"""``python -m jaxspec`` is the command ``jaxspec``."""

from jaxspec.cli.main import main

main(prog_name="jaxspec")
