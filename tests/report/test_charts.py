"""Charts are validated against Vega-Lite's schema by the tests, not when a report is written."""

import altair as alt
import pytest
from jsonschema import ValidationError

from evaluator.report.figures import compiled


def test_a_chart_that_breaks_the_schema_fails_in_every_test_that_draws_it() -> None:
    points = alt.Chart(alt.NamedData("points")).mark_point()
    assert compiled(alt.layer(points.encode(x=alt.X("value:Q", title="accuracy"))).to_dict())["marks"]
    with pytest.raises(ValidationError, match="titel"):
        compiled(alt.layer(points.encode(x=alt.X("value:Q", titel="accuracy"))).to_dict(validate=False))
