"""`evaluator gate`: read a run and its base, and decide by a policy."""

from pathlib import Path

from evaluator.compare.gate import Gate, Policy, decide
from evaluator.compare.table import comparison_table
from evaluator.errors import ConfigError
from evaluator.progress import Stage
from evaluator.run.compare import read_results, read_runs, shared_sets_of


def gate(run: Path, base: Path, policy: Policy) -> Stage[Gate]:
    """Decide whether a run is tolerably close to its base. Both may be of the same model, on other engines, say.

    Raises ConfigError or StoreError for runs that cannot be compared, and where the policy is about nothing in them.
    """
    if run.resolve() == base.resolve():
        raise ConfigError(f"{run} and --against {base} are the same run. Name another one as the base.")
    runs = read_runs([run, base], of_one_model=True)
    results = yield from read_results(runs)
    return decide(policy, runs, results, comparison_table(runs), shared_sets_of(runs))
