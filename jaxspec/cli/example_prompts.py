"""Default prompts of commands, with words that all shipped caption networks know."""

# Used in this order.
PROMPTS = (
  "a red heart", "an apple", "a green heart", "a cat", "a blue heart on a yellow background", "a strawberry", "a banana",
  "a small orange heart", "a carrot", "a mushroom", "a yellow heart", "a star", "a tulip on a white background", "a house",
  "a dog and a tree", "a car",
)  # fmt: skip

# Validation prompts for results on `PROMPTS`.
HELD_OUT = (
  "a small red heart", "a panda", "a black heart", "a moon", "a strawberry on a white background", "two apples", "a frog",
  "a yellow star", "a fish", "a banana and a heart", "a rocket", "a sunflower", "a crown on a blue background", "a key",
  "a ball", "a red star",
)  # fmt: skip
