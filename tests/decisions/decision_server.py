"""A small HTTP server that answers as a decision service does, by its published schema, and fails when told to."""

import hashlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from evaluator.decisions.endpoint import ProtocolName
from evaluator.decisions.requests import PROTOCOLS
from tests.engine.label_server import LabelServer

Answer = dict[str, Any]


def shares(text: str, names: list[str]) -> dict[str, float]:
    """Return made-up probabilities that depend on the input and the option, rounded to two decimals."""
    weights = {name: 1 + hashlib.sha256(f"{text}{name}".encode()).digest()[0] for name in names}
    return {name: round(weight / sum(weights.values()), 2) for name, weight in weights.items()}


def likeliest(values: dict[str, float]) -> str:
    return max(values, key=lambda name: values[name])


def typed(text: str, question: Answer) -> Answer:
    """Return the answer of System One and Gemini."""
    if question["type"] == "noul":
        return {"type": "noul", "noul": shares(text, ["yes", "no"])["yes"]}
    if question["type"] == "choice":
        values = shares(text, [*question["criteria"]])
        return {"type": "choice", "choice": likeliest(values), "probabilities": values, "confidence": 0.0}
    legend = {str(level): name for level, name in enumerate(question["criteria"])}
    values = shares(text, [*legend])
    score = sum(int(level) * value for level, value in values.items())
    return {"type": "score", "score": score, "legend": legend, "probabilities": values, "confidence": 0.0}


def listed(text: str, question: Answer) -> Answer:
    """Return the answer of Decisions."""
    head = {"type": question["type"], "name": question["name"]}
    if question["type"] == "predicate":
        return head | {"probability": shares(text, ["yes", "no"])["yes"]}
    if question["type"] == "choice":
        values = shares(text, [choice["value"] for choice in question["choices"]])
        pairs = [{"value": name, "probability": value} for name, value in values.items()]
        return head | {"choice": likeliest(values), "probabilities": pairs, "confidence": 0.0}
    labels = [level["label"] for level in question["levels"]]
    values = shares(text, labels)
    pairs = [{"value": n, "label": name, "probability": values[name]} for n, name in enumerate(labels)]
    return head | {"score": 0.5, "probabilities": pairs, "confidence": 0.0}


class DecisionServer(LabelServer):
    """Answers one protocol; `change` may spoil a reply, and `bodies` are the requests that were answered."""

    prompts_key = "questions"

    def __init__(
        self,
        protocol: ProtocolName = "systemone",
        fault: Callable[[BaseHTTPRequestHandler, int], bool] | None = None,
        change: Callable[[Answer, int], object] = lambda _reply, _number: None,
    ) -> None:
        self.path, self.bodies = PROTOCOLS[protocol].path, list[Answer]()
        super().__init__(fault)

        def answer(body: Answer) -> Answer:
            self.bodies.append(body)
            text = body.get("state", body.get("input"))
            questions = body["questions"]
            answers: Any = (
                [listed(text, one) for one in questions]
                if protocol == "decisions"
                else {name: typed(text, one) for name, one in questions.items()}
            )
            reply = {"answers": answers, "usage": {"input_tokens": 100, "output_tokens": 1}}
            reply |= {} if protocol == "gemini" else {"model": "jev-1.14.0"}
            change(reply, len(self.bodies))
            return reply

        self.answer = answer
