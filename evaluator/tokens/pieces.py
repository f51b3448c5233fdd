"""Where a text can be cut so that its pieces' tokens, one after the other, are the tokens of the text.

Prompts repeat the same lines over and over: the demonstrations, and the query once a label. A tokenizer that first cuts
text by a known regular expression tokenises each match by itself, so a line needs to be tokenised once.
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
    """The pieces of a text: each ends in a line end that a character other than white space stands before, and the next
    begins with an ASCII letter.

    No match of the expressions that `cuts_exactly` knows goes on across such a place, and none looks beyond it: the one
    that tells white space before a word from other white space needs two characters of it.
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
    """Whether this tokenizer of the `tokenizers` library gives a text the tokens of its pieces: known for GPT-2's
    expression and those of later models that list its rules, with nothing done to the text before but composition.
    """
    normalizer = backend.normalizer
    composes = normalizer is None or json.loads(normalizer.__getstate__())["type"] == "NFC"
    # An added token that takes the white space before it would reach over a cut.
    added = backend.get_added_tokens_decoder().values()
    reaches_over = any(token.lstrip or token.single_word or "\n" in token.content for token in added)
    return composes and not reaches_over and _splits_at_lines(backend.pre_tokenizer)


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
