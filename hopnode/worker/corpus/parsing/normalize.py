"""The one form in which text is stored: NFC, `\\n` line ends, and no character that a reader cannot see.

Knows Unicode only; it never looks at what the text says.
"""

import re
import unicodedata

# Line ends of every kind, form feeds and the Unicode separators become `\n`.
_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")

# No-break spaces look like spaces, and nobody types them into a search or a grep pattern.
_SPACES = re.compile("[\u00a0\u2007\u202f]")

# Controls, soft hyphens, zero-width spaces, bidirectional marks and overrides, invisible operators, fillers, tag
# characters (which can carry a hidden ASCII message), interlinear marks, lone surrogates and noncharacters.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\ufdd0-\ufdef\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
)

# Scripts whose letters join or stack, so that a (non-)joiner changes what is read: Arabic, Syriac, N'Ko, Mandaic,
# the Indic scripts, Tibetan, Myanmar, Khmer, Mongolian, Balinese, Javanese, Meetei and the Brahmic scripts of plane 1.
_JOINING = re.compile(
    "[\u0600-\u074f\u0750-\u077f\u07c0-\u07ff\u0840-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18af\u1b00-\u1b7f"
    "\u1cd0-\u1cff\ua840-\ua8ff\ua980-\ua9ff\uaa60-\uaa7f\uabc0-\uabff\ufb50-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc"
    "\U00010a00-\U00010a5f\U00011000-\U000114df\U00011580-\U000116cf\U0001e900-\U0001e95f]"
)
_EMOJI = re.compile("[\u00a9\u00ae\u2190-\u21ff\u2300-\u27bf\u2900-\u297f\u2b00-\u2bff\U0001f000-\U0001faff]")
_HAN = re.compile("[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_SYMBOL = re.compile("[0-9#*\u2010-\u33ff]")

_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]+")
_JOINERS = re.compile("[\u200c\u200d]+")
_ZWNJ = "\u200c"
_EMOJI_SELECTOR = "\ufe0f"


def normalize_text(text: str) -> str:
    """The stored form of `text`; idempotent.

    Joiners stay where they change the reading: Arabic, Persian, Indic scripts, emoji sequences. One variation selector
    stays after a character that can have variants. Every other invisible character goes. So a search finds what a person
    sees and a model reads.
    """
    text = _LINE_ENDS.sub("\n", text)
    text = _INVISIBLE.sub("", text)
    if text.isascii():
        return text
    text = _SPACES.sub(" ", text)
    text = unicodedata.normalize("NFC", text)
    while (cleaned := _without_idle_marks(text)) != text:  # what goes may bring new neighbours together
        text = cleaned
    return text


def _without_idle_marks(text: str) -> str:
    return unicodedata.normalize("NFC", _JOINERS.sub(_kept_joiner, _SELECTORS.sub(_kept_selector, text)))


def _kept_selector(match: re.Match[str]) -> str:
    """Runs of selectors can smuggle bytes, so one at most stays, and only after a character that has variants."""
    before = match.string[match.start() - 1 : match.start()]
    first = match[0][0]
    if _HAN.match(before) or (first <= _EMOJI_SELECTOR and _has_variants(before)):
        return first
    return ""


def _has_variants(character: str) -> bool:
    return bool(_EMOJI.match(character) or _SYMBOL.match(character) or _JOINING.match(character))


def _kept_joiner(match: re.Match[str]) -> str:
    """The first joiner of a run, where the letters around it give it a meaning."""
    before = match.string[match.start() - 1 : match.start()]
    after = match.string[match.end() : match.end() + 1]
    first = match[0][0]
    if _JOINING.match(before):
        return first if first != _ZWNJ or _JOINING.match(after) else ""
    in_emoji = _EMOJI.match(after) and (before == _EMOJI_SELECTOR or _EMOJI.match(before))
    return first if in_emoji and first != _ZWNJ else ""
