"""A small HTTP server that answers as SGLang's is documented to, on the handler of the made-up vLLM server."""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tests.engine.label_server import Answer, LabelServer, log_prob

LogProb = Callable[[Sequence[int], int], float]


def generated(body: Answer, token_log_prob: LogProb) -> list[Answer]:
    """The answers of POST /generate to a batch of token ids."""
    answers = []
    for place, tokens in enumerate(body["input_ids"]):
        about: Answer = {"prompt_tokens": len(tokens), "cached_tokens": len(tokens) // 2}
        if (start := body["logprob_start_len"][place]) >= 0:  # -1: nothing of the prompt
            rows = [[token_log_prob(tokens[:n], tokens[n]), tokens[n], None] for n in range(start + 1, len(tokens))]
            about["input_token_logprobs"] = [[None, tokens[start], None], *rows]
        if ids := body.get("token_ids_logprob"):
            about["output_token_ids_logprobs"] = [
                [[token_log_prob(tokens, token), token, None] for token in ids[place]]
            ]
        answers.append({"text": "", "meta_info": about | {"finish_reason": {"type": "length", "length": 1}}})
    assert body["sampling_params"] == {"max_new_tokens": 1, "temperature": 0}
    assert body["return_logprob"] is True
    return answers


class SglangServer(LabelServer):
    """Serves the model `small`, and faults as LabelServer does."""

    path, prompts_key = "/generate", "input_ids"
    about: ClassVar[dict[str, Answer]] = {
        "/v1/models": {"data": [{"id": "small", "owned_by": "sglang"}]},
        "/server_info": {"version": "0.5.9"},
    }

    def __init__(self, fault: Any = None, token_log_prob: LogProb = log_prob) -> None:
        super().__init__(fault)
        self.answer = lambda body: generated(body, token_log_prob)


def without_row(answers: list[Answer]) -> list[Answer]:
    answers[-1]["meta_info"]["output_token_ids_logprobs"] = []
    return answers


def of_another_token(answers: list[Answer]) -> list[Answer]:
    answers[0]["meta_info"]["output_token_ids_logprobs"][0][0][1] += 1
    return answers


def of_another_prompt(answers: list[Answer]) -> list[Answer]:
    answers[0]["meta_info"]["prompt_tokens"] += 1
    return answers


def without_number(answers: list[Answer]) -> list[Answer]:
    answers[0]["meta_info"]["output_token_ids_logprobs"][0][0][0] = None  # what minus infinity becomes in JSON
    return answers


def too_likely(answers: list[Answer]) -> list[Answer]:
    answers[0]["meta_info"]["output_token_ids_logprobs"][0][0][0] = math.log(2)
    return answers


def one_too_few(answers: list[Answer]) -> list[Answer]:
    return answers[:-1]


SPOILED = (without_row, of_another_token, of_another_prompt, without_number, too_likely, one_too_few)
"""What may be wrong with answers to questions about next tokens."""
