"""Cut texts into pieces whose tokens, joined, are the tokens of the text.

Prompts repeat the same lines: the demonstrations, and the query once per label. A tokenizer that first cuts text by a
regular expression tokenises each match separately, so each different line needs to be tokenised only once.
"""

import json
from typing import Any

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CUT_AFTER_LINES = (
    rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}",  # Llama 3, GPT-4
    rf"{_WORDS}|\p{{N}}|{_REST}",  # Qwen 2 and 3
)


def cut(text: str) -> list[str]:
    """Cut a text after each line end that follows a character other than white space and precedes an ASCII letter.

    No match of the expressions that `cuts_exactly` accepts extends across such a place, and none looks ahead beyond it:
    the lookahead that separates white space before a word from other white space needs two white-space characters.
    """
    pieces: list[str] = []
    for line in text.split("\n"):
        first, before = line[:1], pieces[-1] if pieces else ""
        if before and not before[-1].isspace() and first.isascii() and first.isalpha():
            pieces[-1] += "\n"
            pieces.append(line)
        elif pieces:
            pieces[-1] = f"{before}\n{line}"
        else:
            pieces.append(line)
    return pieces


def cuts_exactly(backend: Any) -> bool:
    """Return whether this tokenizer of the `tokenizers` library gives a text the tokens of its pieces.

    True for GPT-2's expression and the listed ones of later models, if the text is not normalised except to NFC.
    """
    normalizer = backend.normalizer
    composes = normalizer is None or json.loads(normalizer.__getstate__())["type"] == "NFC"
    # An added token that includes the white space before it would extend across a cut.
    added = backend.get_added_tokens_decoder().values()
    extends_across = any(token.lstrip or token.single_word or "\n" in token.content for token in added)
    return composes and not extends_across and _splits_at_lines(backend.pre_tokenizer)


def _splits_at_lines(pre_tokenizer: Any) -> bool:
    if pre_tokenizer is None:
        return False
    stated = json.loads(pre_tokenizer.__getstate__())
    steps = stated["pretokenizers"] if stated["type"] == "Sequence" else [stated]
    if not steps or steps[-1]["type"] != "ByteLevel" or steps[-1]["add_prefix_space"]:
        return False
    if len(steps) == 1:
        return bool(steps[0]["use_regex"])
    split, bytes_alone = steps[0], not steps[-1]["use_regex"]
    is_known = split["type"] == "Split" and split["pattern"].get("Regex") in _CUT_AFTER_LINES
    return len(steps) == 2 and bytes_alone and is_known and split["behavior"] == "Isolated" and not split["invert"]
