"""Captions are cleaned as for the released networks; ftfy is required only for text that it changes."""

import importlib.util
import sys

import pytest

from jaxspec.io.text.caption_cleaning import clean_caption
from jaxspec.io.text.plain_text import plain_text
from tests import t5_folders

HAS_FTFY = importlib.util.find_spec("ftfy") is not None
PAIRS = list(zip(t5_folders.TEXT["prompts"], t5_folders.TEXT["cleaned"]))
PAIRS += [("a 3.5×4 5х6 b", "a b"), ("one&nbsp;ＡＢ", "one ab")]
# Each rule, with the result of the official code.
RULES = [
  ("a+red%20fox", "a red fox"),
  ("<person> and <PERSON>", "person and person"),
  ("go to www.site.com/a-b now", "go to now"),
  ("mail me@mail.com today", "mail me today"),
  ("a <script>var x</script>fox<br>in <!-- no --> snow", "a foxin snow"),
  ("1 < 2 &amp; 3 &lt;b&gt;", "1 < 2 3"),
  ("a ‘one’ “two” — «three»", 'a \'one\' "two" - "three"'),
  ("seen at 3:45  ", "seen at 3:45"),
  ("from 192.168.0.1 on", "from on"),
  (r"one\ntwo", "one two"),
  ("#12 #1234 #12345 1234567 12345", "1234 12345"),
  ("cat.jpg or a png image", "or a"),
  ("''' \"\" ... .. a . b", '" " a b'),
  ("a-b-c-d", "a-b-c-d"),
  ("a-b-c-d-e_f", "a b c d e f"),
  ("jc6640 jc6640vc 6640vc231 j2d1a2a", ""),
  ("a worldwide free shipping, free download, click for more, page 7 b", "a , , , b"),
  ("a 3.x4 b 10x20", "a b"),
  ("a : b,c.d", "a: b, c. d"),
  ("'quoted text'", "quoted text"),
  ("_,-edge+,", "-edge"),
  (".hidden", ""),
  ("free\r\ndownload", ""),
  ("漢字", ""),
]


@pytest.mark.parametrize(("prompt", "wanted"), PAIRS)
def test_prompts(prompt, wanted):
  if not HAS_FTFY and set(prompt) & set("ﬁ×Ａ"):
    pytest.skip("needs ftfy: pip install 'jaxspec-decoding[t5]'")
  assert clean_caption(prompt) == wanted


@pytest.mark.parametrize(("prompt", "wanted"), RULES)
def test_rules(prompt, wanted):
  assert clean_caption(prompt) == wanted


def test_ftfy_is_asked_for(monkeypatch):
  monkeypatch.setitem(sys.modules, "ftfy", None)
  assert clean_caption("A “red” fox — in the snow (2024)") == 'a "red" fox - in the snow 2024'
  with pytest.raises(ValueError, match=r"ftfy to clean captions with characters such as 'é': pip install 'jaxspec.*\[t5\]'"):
    clean_caption("a naïve café")


@pytest.mark.parametrize(
  ("text", "wanted"),
  [
    ("no tags", "no tags"),
    ("<p class='x'>a</p>  <p>b</p>", "a b"),
    ("a<ruby>b<rt>c</rt></ruby>d", "abd"),
    ("<template>a<b>c</b></template>d", "d"),
    ("&eacute; &#233; &#xe9; &#150; &nosuch; &#xyz;", "é é é – &nosuch &#xyz;"),
    ("<![CDATA[x]]>y<?pi?><!DOCTYPE z>", "xy"),
    ("a < b > c <3", "a < b > c <3"),
  ],
)
def test_plain_text(text, wanted):
  assert plain_text(text) == wanted
