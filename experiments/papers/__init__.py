"""What the papers show, item by item: a table or figure, the command here, both figures, and whether the order agrees.

One file per paper; `experiments.engine.reproduction` renders it for ``docs/reproducing.md``.
"""
