"""Figures of merit of a decode, of a rule, and of sets of pictures."""
