"""Make the golden files again, from the StaICC toolkit alone: `make golden`, and review the diff.

staicc_normal_prompts.json: for each dataset, in the toolkit's order, the SHA-256 of the 1,024 prompts of StaICC-Normal
at each k, joined by NUL characters. Digests alone, because the texts are other people's.
"""

import contextlib
import hashlib
import io
import json
from pathlib import Path

FOLDER = Path(__file__).parent


def staicc_normal_prompts() -> dict[str, dict[str, str]]:
    from StaICC.normal import Normal

    digests: dict[str, dict[str, str]] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        benchmark = Normal(k=0)
        for k in (0, 1, 4):
            benchmark.re_initialize(k=k)
            for each in benchmark.experimentor:
                text = "\0".join(each.prompt_set())
                name = each.triplet_dataset.get_dataset_name()
                digests.setdefault(name, {})[f"k={k}"] = hashlib.sha256(text.encode()).hexdigest()
    return digests


if __name__ == "__main__":
    text = json.dumps(staicc_normal_prompts(), indent=2, ensure_ascii=False)
    (FOLDER / "staicc_normal_prompts.json").write_text(text + "\n", encoding="utf-8")
