"""Hours against dollars: one training on a CPU server and on GPUs, at one seller's prices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from report.advice.answers import CALIBRATION, Answer, answer, read_calibration
from report.advice.jobs import WORK, Job
from report.data.dataset import Dataset
from report.pages.charts import Chart
from report.pages.exhibit_types import Exhibit, Family, Table, records
from report.pages.families.time_to_train import format_hours
from report.pages.figure_data import Evidence
from report.pages.pictures.drawing import HOURS, Point, scatter_chart
from report.pages.verdict_words import NOTHING, PREDICTED
from report.quantities.published_prices import BERT_LARGE

# A GPU on which nobody has trained the network in MLPerf, so that the adviser predicts its hours.
_PREDICTED, _PREDICTED_PRICE = "Tesla T4", "aws-g4dn.xlarge.usd_per_hour"
_NAMES = {"server": "CPU server (2 processors)"}


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show the hours and the price of training BERT-large on each machine."""
    cases = sorted(records(evidence.quantity("published.training_cost")), key=lambda case: float(case["hours"]))
    by_machine = {str(case["machine"]): case for case in cases}
    if "server" not in by_machine or len(cases) < 2 or evidence.data is None:
        return
    points = [_published_point(case, rank) for rank, case in enumerate(cases)]
    rows = [[_name(case), format_hours(case["hours"]), dollars(case["estimate"]), str(case["price"]), NOTHING]
            for case in cases]  # fmt: skip
    predicted = _predicted_case(evidence.data)
    if predicted:
        points.append(predicted[0])
        rows.append(predicted[1])
    best, server = cases[0], by_machine["server"]
    yield Exhibit(
        Chart(
            "picture-hours-dollars",
            f"One {_name(best).split()[0]} trains BERT in {format_hours(best['hours'])} for {dollars(best['estimate'])}"
            f"; a CPU server takes {format_hours(server['hours'])} and {dollars(server['estimate'])}",
            scatter_chart(points, ("time of the whole training", "its price, USD"), HOURS),
            f"○ published: MLPerf’s training of {BERT_LARGE}, its time multiplied by the machines that shared it, at "
            f"AWS’s prices on demand for one of them. {PREDICTED.sign} {PREDICTED.name}, with its 80% range: no such "
            "training is published. Bars: from the fastest to the slowest run.",
            "; ".join(f"{row[0]}: {row[1]}, {row[2]}" for row in rows),
        ),
        ["The fastest machine is the cheapest here, though its hour costs most: it is done so much sooner."]
        if min(points, key=lambda point: point.y).x == min(point.x for point in points)
        else ["The cheapest machine is not the fastest."],
        Table(["Machine", "Time", "Price", "Priced as", "80% of times"], rows, "lrrlr",
              "One training on one machine").without_empty_columns(),
        ["G29", "G22", "W36", "W33"],
    )  # fmt: skip


def dollars(amount: float) -> str:
    """Format a price: '$5.06', '$98'."""
    return f"${amount:.2f}" if amount < 10 else f"${amount:,.0f}"


def _name(case: Any) -> str:
    return _NAMES.get(str(case["machine"]), str(case["machine"]))


def _published_point(case: Any, rank: int) -> Point:
    label = f"{_name(case)}: {format_hours(case['hours'])}, {dollars(case['estimate'])}"
    return Point(float(case["hours"]), float(case["estimate"]), float(case["low"]), float(case["high"]), label,
                 is_gpu=case["machine"] != "server", rank=rank)  # fmt: skip


def _predicted_case(data: Dataset) -> tuple[Point, list[str]] | None:
    """Return the mark and the table row of the predicted GPU; None if the adviser cannot answer.

    The run has as many sequences as eight H100 trained on in MLPerf's time.
    """
    sequences = data.figure("mlperf-training-3.1.8xh100.bert_s") * data.figure(
        "mlperf-training-3.1.8xh100.bert_sequences_per_s"
    )
    sizes = {"samples": sequences, "tokens_per_sample": data.figure("bert-wikipedia.tokens")}
    job = Job(id="hours-dollars", kind="train", model=BERT_LARGE, hardware=_PREDICTED, precision="fp16",
              work={name: sizes.get(name) for name in WORK}, unit="s")  # fmt: skip
    answered: Answer = answer(job, read_calibration(CALIBRATION))
    if answered.seconds is None:
        return None
    hours = answered.seconds.scale(1 / 3600)
    hourly = data.figure(_PREDICTED_PRICE)
    price = hours.scale(hourly)
    label = f"T4: {format_hours(hours.middle)}, {dollars(price.middle)}"
    row = ["T4", format_hours(hours.middle), dollars(price.middle), _PREDICTED_PRICE.partition(".usd")[0],
           f"{format_hours(hours.low)} to {format_hours(hours.high)}"]  # fmt: skip
    return Point(hours.middle, price.middle, price.low, price.high, label, PREDICTED.name, rank=99), row


FAMILY = Family(
    "hours-dollars", "Hours against dollars",
    "What does one training cost, in time and in money, on a CPU server and on a GPU?", show, "pictures",
)  # fmt: skip
