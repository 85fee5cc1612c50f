"""An hour on an accelerator: what only such a machine can show, in steps that can be stopped and gone on with."""
