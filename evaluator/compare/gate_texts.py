"""Write the decision of a gate: lines of a terminal, and JUnit XML."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from evaluator.compare.gate import Gate
from evaluator.redaction import printable


def gate_lines(gate: Gate) -> Iterator[str]:
    """Yield the outcome with its reason, then every check if there are several."""
    yield f"{gate.outcome}: {gate.run} against {gate.base}, {gate.policy.metric}, margin {gate.policy.margin:g}"
    if len(gate.checks) == 1:
        yield gate.reason
    for check in gate.checks if len(gate.checks) > 1 else ():
        yield f"  {check.outcome:12}  {check.name}: {check.reason}"


def junit(gate: Gate) -> bytes:
    """Return the checks as JUnit XML: a NO-GO is a failure, and an INCONCLUSIVE an error, as it was not decided.

    Source: the elements that Jenkins and GitHub's readers share (testsuites, testsuite, testcase, failure, error).
    """
    counts = {
        "tests": len(gate.checks),
        "failures": sum(check.outcome == "NO-GO" for check in gate.checks),
        "errors": sum(check.outcome == "INCONCLUSIVE" for check in gate.checks),
    }
    totals = {key: str(count) for key, count in counts.items()}
    root = Element("testsuites", {"name": "evaluator gate", **totals})
    suite = SubElement(root, "testsuite", {"name": f"{gate.run} against {gate.base}", **totals})
    for check in gate.checks:
        about = {"classname": f"{check.suite}.{check.part}", "name": f"{check.dataset}, {gate.policy.metric}"}
        case = SubElement(suite, "testcase", about)
        if check.outcome == "GO":
            SubElement(case, "system-out").text = check.reason
        else:
            kind = "failure" if check.outcome == "NO-GO" else "error"
            SubElement(case, kind, {"type": check.outcome, "message": check.reason})
    indent(root)
    text = printable(str(tostring(root, encoding="unicode")))  # XML has no control codes
    return f"<?xml version='1.0' encoding='utf-8'?>\n{text}\n".encode()
