"""Define texts of training sequences that are from no dataset: other templates, and unrelated label words."""

INSTRUCTIONS = (
    "",
    "classify the text. ",
    "give the label of each text. ",
    "read the examples and name the class of the last one. ",
    "please answer with one word. ",
    "here are some texts and their labels. ",
)
INPUT_PREFIXES = ("text: ", "input: ", "sentence: ", "review: ", "message: ", "question: ", "example: ", "post: ", "")
LABEL_PREFIXES = ("label: ", "class: ", "answer: ", "category: ", "output: ", "type: ", "result: ", "it is ")
LABEL_AFFIXES = ("\n", "\n", "\n\n", " \n")
TEMPLATE_WORDS = (*INSTRUCTIONS, *INPUT_PREFIXES, *LABEL_PREFIXES, *LABEL_AFFIXES)

_SYMBOLS = """
yes no left right up down red blue green black white one two three four five six seven eight nine ten alpha
beta gamma delta cat dog horse bird fish apple pear river stone cloud tree house door window table chair north
south east west spring summer autumn winter monday friday sunday open closed hot cold high low first second
third last old new big small fast slow foo bar baz art music water fire earth air gold silver iron paper king
queen day night sun moon star
"""
SYMBOLS = tuple(_SYMBOLS.split())
"""Label words that are unrelated to the labels: only the demonstrations show what they mean."""
