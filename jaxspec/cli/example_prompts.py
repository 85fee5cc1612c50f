"""Prompts for commands that need some: the shipped networks know foods and hearts."""

# Asked for one after the other.
PROMPTS = (
  "red heart", "red apple", "green heart", "pizza", "blue heart on yellow background", "strawberry", "hamburger",
  "purple heart small", "lemon", "noto cookie", "orange heart", "twemoji doughnut", "grapes on white background",
  "broken heart", "ice cream", "fluent watermelon",
)  # fmt: skip

# On these is tried what was found on `PROMPTS`.
HELD_OUT = (
  "green apple", "fluent pizza", "yellow heart", "noto strawberry", "watermelon on white background", "cherries",
  "white heart", "twemoji red heart", "banana", "bread on yellow background", "pink heart small", "carrot",
  "fluent hamburger", "pear", "brown heart on green background", "noto doughnut",
)  # fmt: skip
