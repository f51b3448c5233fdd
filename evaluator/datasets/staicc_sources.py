"""The ten datasets of StaICC: their data files, label spaces and the texts around their examples.

Where the toolkit's code and the paper's tables 4 and 6 differ (label spaces, the prefix of rotten_tomatoes, the first
alternatives of tweet_eval_emotion), these are the toolkit's. It uses the label index in a file as the index into its
label space.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StaiccSource:
    """A data file of the package StaICC and how its examples are shown."""

    input_prefix: str
    label_prefix: str
    label_names: tuple[str, ...]  # in the order of the file's label indices
    instructions: tuple[str, ...]  # five wordings of one question, by GPT-4, from the toolkit's `configs.py`
    # Cho & Inoue 2025, appendix B.1, table 6. The defaults are no instruction and `input_prefix`.
    alternative_instructions: tuple[str, ...] = ()  # two; empty: the first two of `instructions`
    alternative_input_prefixes: tuple[str, str] = ("text: ", "sentence: ")
    n_demonstrations: int = 4096  # size of the demonstration split (appendix B.1, table 5)
    file: str = ""  # empty: the name of the dataset, with the suffix .dataset


_FILM_OPINION = (
    "How would you describe the overall feeling of the movie based on this sentence? ",
    "What mood does this sentence convey about the movie? ",
    "What is the reviewer's opinion of the movie? ",
    "What are the reviewer's thoughts on the movie? ",
    "What impression does the reviewer have of the movie? ",
)
_HATE_SPEECH = (
    "Does this sentence contain hate speech? ",
    "Is this sentence an example of hate speech? ",
    "Does this sentence convey hateful language? ",
    "Is this sentence indicative of hate speech? ",
    "Does this sentence involve hate speech? ",
)

SOURCES = {
    "glue_sst2": StaiccSource(
        file="sst2.dataset",
        input_prefix="sentence: ",
        label_prefix="sentiment: ",
        label_names=("negative", "positive"),
        alternative_instructions=(_FILM_OPINION[0], "Please classify the sentiment of the following sentence. "),
        alternative_input_prefixes=("text: ", "review: "),
        instructions=_FILM_OPINION,
    ),
    "rotten_tomatoes": StaiccSource(
        input_prefix="review: ",
        label_prefix="sentiment: ",
        label_names=("negative", "positive"),
        alternative_instructions=(_FILM_OPINION[0], "Please classify the sentiment of the following sentence. "),
        instructions=_FILM_OPINION,
    ),
    "financial_phrasebank": StaiccSource(
        input_prefix="sentence: ",
        label_prefix="sentiment: ",
        label_names=("negative", "neutral", "positive"),
        alternative_input_prefixes=("text: ", "news: "),
        n_demonstrations=512,  # 2,264 rows in all
        instructions=(
            "What is the attitude towards the financial news in this sentence? ",
            "What is the emotional response to the financial news in this sentence? ",
            "What is the reaction to the financial news in this sentence? ",
            "How does this sentence convey feelings about the financial news? ",
            "How is the financial news perceived in this sentence? ",
        ),
    ),
    "sst5": StaiccSource(
        input_prefix="sentence: ",
        label_prefix="sentiment: ",
        label_names=("poor", "bad", "neutral", "good", "great"),
        alternative_input_prefixes=("text: ", "review: "),
        instructions=_FILM_OPINION,
    ),
    "trec": StaiccSource(
        input_prefix="question: ",
        label_prefix="target: ",
        label_names=("short", "entity", "description", "person", "location", "number"),
        instructions=(
            "What is the topic of the question? ",
            "What is the primary focus of this question? ",
            "What is the central subject of this question? ",
            "What does the question concern? ",
            "What is the question addressing? ",
        ),
    ),
    "agnews": StaiccSource(
        input_prefix="news: ",
        label_prefix="topic: ",
        label_names=("world", "sports", "business", "science"),
        instructions=(
            "What is the topic of the news? ",
            "What is the news focused on? ",
            "What is the subject of the news? ",
            "What does the news cover? ",
            "What is the news discussing? ",
        ),
    ),
    "subjective": StaiccSource(
        input_prefix="review: ",
        label_prefix="subjectiveness: ",
        label_names=("false", "true"),
        instructions=(
            "Does this sentence reflect a personal opinion? ",
            "Is this sentence expressing a personal opinion or stating a fact? ",
            "Is this sentence based on personal opinion or factual information? ",
            "Is this sentence expressing a personal view or a factual statement? ",
            "Is this sentence expressing a personal perspective or presenting objective facts? ",
        ),
    ),
    "tweet_eval_emotion": StaiccSource(
        input_prefix="tweet: ",
        label_prefix="emotion: ",
        label_names=("anger", "joy", "positive", "sad"),
        n_demonstrations=3192,  # 5,052 rows in all; the paper's table has this in the row of the next dataset
        instructions=(
            "What feeling does this sentence convey? ",
            "What emotion does this sentence express? ",
            "What emotion is conveyed by this sentence? ",
            "What is the emotional tone of this sentence? ",
            "What is the mood reflected in this sentence? ",
        ),
    ),
    "tweet_eval_hate": StaiccSource(
        input_prefix="tweet: ",
        label_prefix="hate speech: ",
        label_names=("normal", "hate"),
        instructions=_HATE_SPEECH,
    ),
    "hate_speech_18": StaiccSource(
        input_prefix="tweet: ",
        label_prefix="hate speech: ",
        label_names=("normal", "hate", "skip", "relation"),
        instructions=_HATE_SPEECH,
    ),
}
"""Sources by name, in the benchmark's order."""
