"""Training of a drafter on a target (``jaxspec train eagle``, ``draft`` and others).

`students` lists the kinds of drafters; ``NAME_student`` has the settings and the loss of one. `student` is what they share,
`training` one training. `samples` and `drawn_samples` are the rows that it learns from.
"""
